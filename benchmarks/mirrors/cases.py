"""A mirror of many changes of few keys, beside the last images alone and beside a loop by hand.

Each round begins with the same mirror of the first rows. Ours plans, reads the changelog, reduces
it, writes, and commits the position and the checkpoint. One peer is given the last images and only
writes them; that is what the goals are about. The other one reads the changelog by a scanner and
reduces it in memory first; nothing of it survives a crash.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from benchmarks.harness import Case
from benchmarks.mirrors.data import Sizes, sizes
from benchmarks.mirrors.iceberg import IcebergCopy
from benchmarks.mirrors.postgres import PostgresCopy
from benchmarks.mirrors.source import Source
from benchmarks.place import Place, connected, own_database
from tests.fix_postgres import postgres_server


@contextmanager
def cases(place: Place) -> Iterator[Sequence[Case]]:
    """A key table in the embedded engine, and its mirrors."""
    with (
        connected(f"embedded:{place.folder()}") as connection,
        own_database(connection, "mirrors") as database,
        postgres() as server,
    ):
        size = sizes(place)
        source = Source(connection, database, size)
        sql = None if server is None else PostgresCopy(source, place.folder(), server)
        iceberg = IcebergCopy(source, place.folder())
        source.change()
        yield [*([] if sql is None else [sql_case(sql, size)]), iceberg_case(iceberg, size)]


@contextmanager
def postgres() -> Iterator[str | None]:
    """The address of a PostgreSQL server; None where it is not installed."""
    with ExitStack() as stack:
        server: str | None = None
        try:
            server = stack.enter_context(postgres_server())
        except pytest.skip.Exception as missing:
            print(f"  mirrors: nothing of PostgreSQL, {missing}", file=sys.stderr)
        yield server


def sql_case(copy: PostgresCopy, size: Sizes) -> Case:
    """Into PostgreSQL."""
    return Case(
        f"{size.changes:,} changes of {size.keys:,} keys into PostgreSQL",
        "changes/s",
        {
            "ours": copy.mirror,
            "COPY + MERGE": copy.merge_images,
            "scan + COPY + MERGE": copy.merge_changes,
        },
        {"COPY + MERGE": 0.7},
    )


def iceberg_case(copy: IcebergCopy, size: Sizes) -> Case:
    """Into Iceberg, with equality deletes."""
    return Case(
        f"{size.changes:,} changes of {size.keys:,} keys into Iceberg",
        "changes/s",
        {
            "ours": copy.mirror,
            "pyiceberg": copy.append_images,
            "scan + pyiceberg": copy.append_changes,
        },
        {"pyiceberg": 0.8},
    )
