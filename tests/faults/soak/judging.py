"""Reads every place that a soak has filled, and judges it by what the programs wrote down."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy

import fluss_client as fluss
from fluss_orchestrate import read_table, tier_table
from fluss_orchestrate.core.lake import load_lake_table, read_with_deletes
from fluss_orchestrate.core.lake.catalog import open_catalog
from tests.contract.tables import done
from tests.faults.soak.history import (
    Findings,
    Rows,
    folded,
    judge_copy,
    judge_equal,
    judge_keys,
    judge_log,
)
from tests.faults.soak.journal import Journal, keys_written, written
from tests.faults.soak.places import (
    BUCKETS,
    ICEBERG,
    KEYS,
    KEYS_COPY,
    LOG,
    LOG_COPY,
    Places,
    catalog_of,
)
from tests.faults.soak.programs import APPENDERS, MIRRORS, SINKS

POLL_MS = 1_000
KINDS = {0: "+A", 1: "+I", 2: "-U", 3: "+U", 4: "-D"}
AFTER_IMAGES = ("+A", "+I", "+U")


def whole_log(connection: fluss.FlussConnection, path: fluss.TablePath) -> pa.Table:
    """All rows of a log or changelog, with `at_bucket`, `at_offset` and `kind`."""
    admin = done(connection.get_admin())
    table = done(connection.get_table(path))
    buckets = list(range(BUCKETS))
    ends = done(admin.list_offsets(path, buckets, fluss.OffsetSpec.latest()))
    reached = dict.fromkeys(buckets, 0)
    found: list[pa.Table] = []
    with done(table.new_scan().create_record_batch_log_scanner()) as scanner:
        scanner.subscribe_buckets(dict.fromkeys(buckets, 0))
        while any(reached[bucket] < ends[bucket] for bucket in buckets):
            for read in scanner.poll_record_batch(POLL_MS):
                bucket, count = read.bucket.bucket_id, read.batch.num_rows
                reached[bucket] = read.last_offset + 1
                offsets = np.arange(read.base_offset, read.base_offset + count)
                kinds = [0] * count if read.change_types is None else read.change_types.to_pylist()
                places = {
                    "at_bucket": pa.array([bucket] * count, pa.int64()),
                    "at_offset": pa.array(offsets, pa.int64()),
                    "kind": [KINDS[kind] for kind in kinds],
                }
                rows = pa.Table.from_batches([read.batch])
                for name, column in places.items():
                    rows = rows.append_column(name, pa.array(column))
                found.append(rows)
    return pa.concat_tables(found).sort_by([("at_bucket", "ascending"), ("at_offset", "ascending")])


def rows_of(table: pa.Table, bucket: str = "_bucket", offset: str = "_offset") -> Rows:
    """Where each row is in the log, and its number."""
    columns = (table[name].to_numpy().astype(np.int64) for name in (bucket, offset, "n"))
    return Rows(*columns)


def pairs(table: pa.Table) -> list[tuple[int, int]]:
    """Keys and numbers."""
    return list(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))


class Judge:
    """Brings every place up to date, reads it, and judges it."""

    def __init__(self, places: Places, connection: fluss.FlussConnection) -> None:
        self._places = places
        self._connection = connection

    def finish(self) -> None:
        """What comes after the last fault: every sink, mirror and lake is brought up to date."""
        for kind in SINKS:
            self._places.increment(kind, self._connection, f"last-{kind}")
        for kind in MIRRORS:
            self._places.mirror(kind, self._connection, f"last-{kind}")
        for path in (LOG, KEYS):
            tier_table(self._connection, path, allow_tiering=True)

    def findings(self) -> list[Findings]:
        """What is wrong with each place."""
        return [*self._of_log(), *self._of_keys()]

    def _journals(self, roles: Sequence[str]) -> list[Journal]:
        return [Journal(self._places.folder, role) for role in roles]

    def _of_log(self) -> list[Findings]:
        log = rows_of(whole_log(self._connection, LOG), "at_bucket", "at_offset")
        copied = whole_log(self._connection, LOG_COPY)
        info = done(done(self._connection.get_admin()).get_table_info(LOG))
        lake = load_lake_table(info, "default").scan().to_arrow()
        return [
            judge_log("log table", written(self._journals(APPENDERS)), log),
            judge_copy("Parquet", log, self._parquet()),
            judge_copy("SQL", log, rows_of(self._sql("append")), arrival=True),
            judge_copy("Iceberg", log, rows_of(self._iceberg("append"))),
            judge_copy("Fluss", log, rows_of(copied), arrival=True),
            judge_copy("lake of the log table", log, rows_of(lake, "__bucket", "__offset")),
        ]

    def _of_keys(self) -> list[Findings]:
        history = keys_written(Journal(self._places.folder, "upsert"))
        changes = whole_log(self._connection, KEYS)
        after = changes.filter(pa.compute.is_in(changes["kind"], pa.array(AFTER_IMAGES)))
        triples = zip(*(changes[name].to_pylist() for name in ("kind", "id", "n")), strict=True)
        wanted = folded(triples)
        log = rows_of(after, "at_bucket", "at_offset")
        places = {
            "key table": read_table(self._connection, str(KEYS)).read_all(),
            "lake of the key table": read_table(
                self._connection, str(KEYS), read="lake"
            ).read_all(),
            "mirror in SQL": self._sql("mirror"),
            "mirror in Iceberg": self._iceberg("mirror"),
            "mirror in Fluss": read_table(self._connection, str(KEYS_COPY)).read_all(),
        }
        return [
            judge_log("changelog", history, log, gapless=False),
            *(
                judge(place, expected, pairs(rows))
                for place, rows in places.items()
                for judge, expected in ((judge_keys, history), (judge_equal, wanted))
            ),
        ]

    def _parquet(self) -> Rows:
        files = sorted((self._places.folder / "parquet-append").rglob("*.parquet"))
        columns = ["n", "_bucket", "_offset"]
        return rows_of(pa.concat_tables(pq.read_table(f, columns=columns) for f in files))

    def _sql(self, form: str) -> pa.Table:
        """The rows in the order in which they came."""
        engine = sqlalchemy.create_engine(f"sqlite:///{self._places.folder}/sql-{form}/rows.db")
        names = ("n", "_bucket", "_offset") if form == "append" else ("id", "n")
        asked = ", ".join(f'"{name}"' for name in names)
        with engine.connect() as connection:
            rows = connection.execute(
                sqlalchemy.text(f"SELECT {asked} FROM rows ORDER BY rowid")
            ).all()
        engine.dispose()
        columns = zip(*rows, strict=True) if rows else itertools.repeat([], len(names))
        return pa.table({n: pa.array(c, pa.int64()) for n, c in zip(names, columns, strict=False)})

    def _iceberg(self, form: str) -> pa.Table:
        catalog = open_catalog(catalog_of(self._places.folder / f"iceberg-{form}"))
        return read_with_deletes(catalog.load_table(ICEBERG)).read_all()
