"""Random programs on key tables: four ways to read the final state must agree.

The ways are the state reader (KV snapshot and changelog), limit scans, look-ups, and replaying the
changelog. Programs upsert, delete, update some columns and add columns, on tables with and without
partitions, of every merge engine and row format, with KV snapshots in between. The state at an
earlier offset must be the replay up to there.

`FLUSS_TEST_SEED` sets the first seed; every failure names the seed of its program.
"""

from __future__ import annotations

import functools
import os
import random
import time
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client.engine import StateReader, read_ranges, run_blocking
from fluss_client.model.cluster import OffsetSpec
from tests.contract.tables import Tables, done
from tests.waiting import wait_until

FIRST_SEED = int(os.environ.get("FLUSS_TEST_SEED", "1"))
PROGRAMS_SHORT, PROGRAMS_LONG, AT_ONCE = 8, 300, 30
ROUNDS = 3
KEYS = 40
SCAN_ROWS_MAX = 100_000
DT = fluss.DataTypes
GONE = ("-U", "-D")

Row = dict[str, Any]
State = dict[tuple[Any, ...], Row]
Bounds = dict[fluss.TableBucket, int]


class Program:
    """One table, and what a random program does with it."""

    def __init__(self, tables: Tables, seed: int) -> None:
        self.seed = seed
        self.tables = tables
        self.random = random.Random(seed)
        choose = self.random.choice
        self.engine = choose(["", "", "", "first_row", "versioned", "aggregation"])
        self.partitioned = choose([False, True])
        self.composite = choose([False, True])
        self.added: list[str] = []
        properties = {"table.kv.format": choose(["COMPACTED", "INDEXED"])}
        if self.engine:
            properties["table.merge-engine"] = self.engine
        if self.engine == "versioned":
            properties["table.merge-engine.versioned.ver-column"] = "number"
        if self.engine == "aggregation":
            properties.pop("table.kv.format")
        self.keys = ["id", *["part"] * self.composite, *["region"] * self.partitioned]
        self.table = tables.create(
            self._schema(),
            buckets=choose([1, 1, 3]),
            bucket_keys=["id"],  # a cluster with an Iceberg lake hashes one column only
            partitions=[{"region": "a"}, {"region": "b"}] if self.partitioned else (),
            properties=properties,
            partition_keys=["region"] if self.partitioned else None,
        )
        self.path = self.table.get_table_path()
        self.used: set[tuple[Any, ...]] = set()
        self.middle: Bounds = {}

    def _schema(self) -> fluss.Schema:
        functions = {"number": "sum", "text": "last_value", "amount": "max"}
        columns = [fluss.Column("id", DT.int())]
        columns += [fluss.Column(name, DT.string()) for name in self.keys[1:]]
        types = {"number": DT.bigint(), "text": DT.string(), "amount": DT.double()}
        for name, kind in types.items():
            function = fluss.AggFunction(functions[name]) if self.engine == "aggregation" else None
            columns.append(fluss.Column(name, kind, agg_function=function))
        return fluss.Schema.of(columns, self.keys)

    # What it does

    def _key(self) -> Row:
        values = {
            "id": self.random.randrange(KEYS),
            "part": self.random.choice("xyz"),
            "region": self.random.choice("ab"),
        }
        key = {name: values[name] for name in self.keys}
        self.used.add(tuple(key.values()))
        return key

    def _values(self) -> Row:
        number, maybe = self.random.randrange(1000), self.random.random
        values: Row = {
            "number": number,
            "text": "" if maybe() < 0.1 else f"{self.random.random()}" * self.random.randrange(4),
            "amount": None if maybe() < 0.2 else maybe(),
        }
        return values | dict.fromkeys(self.added, f"added {number}")

    def run(self) -> None:
        """One round of writes."""
        writes = ["upsert"] * 3
        if not self.engine:
            writes += ["delete", "partial"]
        if self.random.random() < 0.4 and len(self.added) < 2:
            self._add_column()
        for _ in range(self.random.randrange(1, 5)):
            getattr(self, f"_{self.random.choice(writes)}")()

    def _upsert(self) -> None:
        rows = [self._key() | self._values() for _ in range(self.random.randrange(1, 40))]
        self.tables.upsert(self.table, rows)

    def _partial(self) -> None:
        others = [
            n for n in ("number", "text", "amount", *self.added) if self.random.random() < 0.5
        ]
        names = [*self.keys, *(others or ["text"])]
        rows = [self._key() | self._values() for _ in range(self.random.randrange(1, 20))]
        self.tables.upsert(self.table, [{n: row[n] for n in names} for row in rows], names)

    def _delete(self) -> None:
        self.tables.delete(self.table, [self._key() for _ in range(self.random.randrange(1, 20))])

    def _add_column(self) -> None:
        self.added.append(f"added_{len(self.added)}")
        field = pa.field(self.added[-1], pa.string())
        done(self.tables.admin.alter_table(self.path, add_columns=[field]))
        self.table = self.tables.reopen(self.table)

    # What it left

    @property
    def info(self) -> fluss.TableInfo:
        """The table as it is now."""
        return self.table.get_table_info()

    def partitions(self) -> dict[int | None, str | None]:
        """The names of the partitions by id."""
        if not self.partitioned:
            return {None: None}
        found = done(self.tables.admin.list_partition_infos(self.path))
        return {partition.partition_id: partition.partition_name for partition in found}

    def ends(self) -> Bounds:
        """The end of every bucket's changelog."""
        backend, info = self.tables.connection.core.backend, self.info
        buckets = list(range(info.num_buckets))
        found = {}
        for partition_id in self.partitions():
            latest = backend.list_offsets(info, partition_id, buckets, OffsetSpec.latest())
            for number, offset in run_blocking(latest).items():
                found[fluss.TableBucket(info.table_id, number, partition_id=partition_id)] = offset
        return found

    def has_snapshots(self, ends: Bounds) -> bool:
        """Whether KV snapshots cover these offsets."""
        for partition_id, name in self.partitions().items():
            for snapshot in done(self.tables.admin.list_kv_snapshots(self.path, name)):
                place = (partition_id, snapshot.bucket.bucket_id)
                wanted = next(
                    end for b, end in ends.items() if (b.partition_id, b.bucket_id) == place
                )
                if wanted > (snapshot.log_offset or 0):
                    return False
        return True

    def _by_key(self, rows: list[Row]) -> State:
        found = {tuple(row[name] for name in self.keys): row for row in rows}
        assert len(found) == len(rows), f"seed {self.seed}: a key occurs twice"
        return found

    def by_reader(self, stops: Bounds | None = None) -> tuple[State, set[str]]:
        """By the state reader, and where the rows came from."""
        core, info = self.tables.connection.core, self.info
        rows: list[Row] = []
        kinds = set()

        async def read(bucket: fluss.TableBucket, stop: int | None) -> None:
            size = self.random.choice([3, 1000])
            reader = StateReader(
                core.backend, info, bucket, core.config, stop=stop, batch_rows=size
            )
            await reader.open()
            try:
                async for batch in reader.batches():
                    rows.extend(batch.to_pylist())
                kinds.add(reader.source.kind)
            finally:
                await reader.close()

        for bucket in self.ends():
            run_blocking(read(bucket, None if stops is None else stops.get(bucket, 0)))
        return self._by_key(rows), kinds

    def by_limit_scan(self) -> State:
        """By one answer per bucket."""
        backend, info = self.tables.connection.core.backend, self.info
        rows: list[Row] = []
        for bucket in self.ends():
            rows += run_blocking(backend.limit_scan(info, bucket, SCAN_ROWS_MAX, None)).to_pylist()
        return self._by_key(rows)

    def by_look_ups(self) -> State:
        """By looking up every key that was ever used."""
        keys = sorted(self.used)
        if not keys:
            return {}
        wanted = [dict(zip(self.keys, key, strict=True)) for key in keys]
        found = done(self.table.new_lookup().lookup_many(wanted))
        return self._by_key([row for row in found if row is not None])

    def by_replay(self, stops: Bounds) -> State:
        """By applying the changelog up to some offsets."""
        core, info = self.tables.connection.core, self.info
        state: State = {}

        async def replay() -> None:
            ranges = {bucket: (0, stop) for bucket, stop in stops.items() if stop}
            async for part in read_ranges(core.backend, info, ranges, None, config=core.config):
                kinds = [fluss.ChangeType(int(kind)).short_string() for kind in part.change_types]
                for kind, row in zip(kinds, part.batch.to_pylist(), strict=True):
                    key = tuple(row[name] for name in self.keys)
                    if kind in GONE:
                        state.pop(key, None)
                    else:
                        state[key] = row

        run_blocking(replay())
        return state

    def check(self) -> set[str]:
        """Compare the four ways; return where the reader's rows came from."""
        what = f"seed {self.seed}, engine {self.engine or 'default'}"
        wanted = self.by_replay(self.ends())
        found, kinds = self.by_reader()
        assert found == wanted, f"{what}: the state reader differs from the changelog"
        assert self.by_limit_scan() == wanted, f"{what}: a limit scan differs from the changelog"
        assert self.by_look_ups() == wanted, f"{what}: look-ups differ from the changelog"
        earlier, _ = self.by_reader(self.middle)
        replayed = self.by_replay(self.middle)
        assert earlier == replayed, (
            f"{what}: the state differs at the earlier offsets {self.middle}"
        )
        return kinds


def wait_for_snapshots(programs: list[Program]) -> None:
    """Wait until KV snapshots hold all that was written so far."""
    for program in programs:
        has_all = functools.partial(program.has_snapshots, program.ends())
        wait_until(f"seed {program.seed}: a snapshot", has_all)


@pytest.fixture
def tables(lake_cluster: Any) -> Any:
    """Tables on the cluster that makes a KV snapshot every second."""
    config = fluss.Config({"bootstrap.servers": lake_cluster.info.bootstrap_servers})
    name = f"states_{os.getpid()}_{time.monotonic_ns()}"
    with fluss.FlussConnection.create(config).result() as connection:
        admin = done(connection.get_admin())
        done(admin.create_database(name))
        yield Tables(connection, admin, name)
        done(admin.drop_database(name, cascade=True))


@pytest.mark.timeout(3000)
def test_four_ways_agree(tables: Tables, long_form: bool) -> None:
    count = PROGRAMS_LONG if long_form else PROGRAMS_SHORT
    kinds: set[str] = set()
    for first in range(FIRST_SEED, FIRST_SEED + count, AT_ONCE):
        last = min(first + AT_ONCE, FIRST_SEED + count)
        programs = [Program(tables, seed) for seed in range(first, last)]
        for number in range(ROUNDS):
            for program in programs:
                program.run()
                if number == 1:
                    program.middle = program.ends()
            if number < ROUNDS - 1:
                wait_for_snapshots(programs)
        for program in programs:
            kinds |= program.check()
            done(tables.admin.drop_table(program.path))
    assert "snapshot" in kinds
