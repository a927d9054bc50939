"""Our client beside the official one, and beside a bare socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import fluss as pyfluss

from benchmarks.client.awaited import Awaited
from benchmarks.client.data import SIZES
from benchmarks.client.key_cases import key_cases
from benchmarks.client.limit import Limit
from benchmarks.client.ours import Ours
from benchmarks.client.read_cases import read_cases
from benchmarks.client.subjects import IMPATIENT_WAIT_MS, Subjects
from benchmarks.client.tables import Tables
from benchmarks.client.write_cases import write_cases
from benchmarks.harness import Case
from benchmarks.place import Place, connected, own_database
from fluss_client import aio


@contextmanager
def cases(place: Place) -> Iterator[Sequence[Case]]:
    """The client's cases, on tables of their own."""
    with (
        connected(place.bootstrap) as connection,
        own_database(connection, "client") as database,
        connected(
            place.bootstrap, scanner_log_fetch_wait_max_time_ms=IMPATIENT_WAIT_MS
        ) as impatient,
        closing(Awaited(aio, place.bootstrap)) as awaited,
        closing(Awaited(pyfluss, place.bootstrap)) as peer,
    ):
        tables = Tables(connection, database)
        subjects = Subjects(
            place.bootstrap,
            SIZES[place.scale],
            tables,
            Ours(connection),
            Ours(impatient),
            awaited,
            peer,
            Limit(connection),
        )
        yield [*write_cases(subjects), *read_cases(subjects), *key_cases(subjects)]
