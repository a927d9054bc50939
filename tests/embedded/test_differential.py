"""Random programs on the embedded engine and on a real cluster: they must agree.

Rows, offsets, change types, schemas, and errors by class and code are compared after every step,
and once more in full when a program ends. Ids, times and batch cuts may differ.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fluss_client.backend.contract import TableChange
from fluss_client.backend.factory import open_backend
from fluss_client.config import Config
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.schema import Column, Schema
from fluss_client.model.table import DatabaseDescriptor, TableDescriptor, TablePath
from fluss_client.model.types import DataTypes
from fluss_client.testing import LocalCluster
from tests.embedded.helpers import append, key_state, keys_of, read_log, upsert
from tests.embedded.pair import LoopThread, Pair, Side

PROGRAMS_SHORT, PROGRAMS_LONG, STEPS = 60, 600, 30

LOG = Schema(pa.schema([("id", pa.int32()), ("name", pa.string())]))
KEYS = Schema(
    pa.schema([pa.field("k", pa.int32(), nullable=False), ("a", pa.string()), ("b", pa.int64())]),
    primary_keys=["k"],
)
PARTED = Schema(pa.schema([("id", pa.int32()), ("p", pa.string())]))

_names = itertools.count()
names = st.sampled_from(["t1", "t2", "t3"])
log_rows = st.lists(
    st.fixed_dictionaries({"id": st.integers(-3, 3), "name": st.none() | st.text(max_size=3)}),
    max_size=4,
)
key_rows = st.lists(
    st.tuples(
        st.booleans(),
        st.fixed_dictionaries(
            {
                "k": st.integers(0, 300),
                "a": st.none() | st.sampled_from(["x", "yy"]),
                "b": st.none() | st.integers(-(2**40), 2**40),
            }
        )
        | st.fixed_dictionaries(
            {"k": st.integers(0, 3), "a": st.sampled_from([None, "z"]), "b": st.none()}
        ),
    ),
    max_size=6,
)
key_batches = st.lists(
    st.tuples(
        key_rows, st.sampled_from([None, None, None, (0, 1), (0, 2), (0,), (0, 1, 2), (1, 2)])
    ),
    min_size=1,
    max_size=3,
)
sequence_steps = st.sampled_from([1, 1, 1, 1, 1, 0, -1, -4, -5, -6, 2])
changes = st.builds(
    lambda name, kind: TableChange(add_columns=(Column(name, kind, "added"),)),
    st.sampled_from(["n1", "n2", "n3", "name", "a"]),
    st.sampled_from([DataTypes.int(), DataTypes.string(), DataTypes.int().with_nullable(False)]),
) | st.builds(
    lambda options, reset: (
        TableChange(reset_options=tuple(options)) if reset else TableChange(set_options=options)
    ),
    st.sampled_from(
        [
            {"mine": "1"},
            {"table.log.tiered.local-segments": "3"},
            {"table.log.tiered.local-segments": "0"},
            {"table.log.ttl": "1 d"},
            {"table.datalake.enabled": "true"},
            {"table.odd": "1"},
        ]
    ),
    st.booleans(),
)
odd_databases = st.sampled_from([None, None, None, "d1", "__d", "no dots.please"])
log_descriptors = st.builds(
    lambda count, properties: TableDescriptor(LOG, bucket_count=count, properties=properties),
    st.sampled_from([None, 1, 2]),
    st.sampled_from(
        [
            {},
            {"table.log.ttl": "3 d"},
            {"table.log.ttl": "soon"},
            {"table.log.arrow.compression.type": "lz4_frame"},
            {"table.no-such-option": "1"},
            {"table.merge-engine": "first_row"},
        ]
    ),
)
key_descriptors = st.builds(
    lambda properties: TableDescriptor(KEYS, bucket_count=1, properties=properties),
    st.sampled_from(
        [
            {},
            {},
            {"table.merge-engine": "first_row"},
            {"table.changelog.image": "wal"},
            {"table.changelog.image": "wal", "table.merge-engine": "first_row"},
            {"table.delete.behavior": "ignore"},
            {"table.delete.behavior": "disable"},
            {"table.kv.format": "indexed"},
            {"table.merge-engine": "first_row", "table.delete.behavior": "allow"},
        ]
    ),
)
parted_descriptors = st.just(TableDescriptor(PARTED, partition_keys=["p"], bucket_count=1))
values = st.sampled_from(["a", "b", "c-1", "x.y", "__z", ""])


class Programs(RuleBasedStateMachine):
    """One program per run; the pair of backends is shared by all of them."""

    pair: Pair
    loop: LoopThread

    @initialize(log=log_descriptors, keys=key_descriptors)
    def begin(self, log: TableDescriptor, keys: TableDescriptor) -> None:
        self.database = f"diff_{os.getpid()}_{next(_names)}"
        self.live: dict[str, str] = {}
        self.hollow: set[str] = set()
        self.sequences: dict[str, int] = {}
        self.writers: dict[tuple[str, str], int] = {}
        self.do(lambda s: s.backend.create_database(self.database, None, False))
        self._create("t1", log, "log")
        self._create("t2", keys, "keys")

    def do(self, call: Any) -> Any:
        return self.loop.run(self.pair.both(call))

    def each(self, call: Any) -> None:
        for side in (self.pair.embedded, self.pair.real):
            self.loop.run(call(side))

    def path(self, name: str) -> TablePath:
        return TablePath(self.database, name)

    def of_kind(self, *kinds: str) -> list[str]:
        return [name for name, held in self.live.items() if held in kinds]

    # Tables

    @rule(
        name=names,
        made=st.tuples(st.just("log"), log_descriptors)
        | st.tuples(st.just("keys"), key_descriptors)
        | st.tuples(st.just("parted"), parted_descriptors),
        drop=st.booleans(),
    )
    def replace_table(self, name: str, made: tuple[str, TableDescriptor], drop: bool) -> None:
        if drop:
            self.do(lambda s: s.backend.drop_table(self.path(name), False))
            self.live.pop(name, None)
        self._create(name, made[1], made[0])

    def _create(self, name: str, descriptor: TableDescriptor, kind: str) -> None:
        made = self.do(lambda s: s.backend.create_table(self.path(name), descriptor, False))
        if made is not None:
            return
        self.live[name] = kind
        self.hollow.discard(name)
        self.each(lambda s: s.refresh(self.path(name)))
        if kind != "parted":
            self.each(lambda s: s.until_ready(name))
        self._compare_description(name)

    def _compare_description(self, name: str) -> None:
        async def described(side: Side) -> Any:
            info = await side.backend.get_table_info(self.path(name))
            return (
                info.schema_id,
                [(c.name, c.id, str(c.type), c.comment) for c in info.schema.columns],
                info.schema.primary_keys,
                info.partition_keys,
                info.bucket_keys,
                info.num_buckets,
                dict(info.properties),
                dict(info.custom_properties),
                info.comment,
            )

        self.do(described)

    @rule(name=names, change=changes)
    def alter_table(self, name: str, change: TableChange) -> None:
        self.do(lambda s: s.backend.alter_table(self.path(name), change, False))
        if name in self.live:
            self.each(lambda s: s.refresh(self.path(name)))
            self._compare_description(name)

    @rule(name=names, schema_id=st.sampled_from([None, 1, 2, 3]), odd=odd_databases)
    def look_around(self, name: str, schema_id: int | None, odd: str | None) -> None:
        async def seen(side: Side) -> Any:
            backend = side.backend
            return (
                sorted(await backend.list_tables(self.database)),
                await backend.database_exists(self.database),
                [await backend.table_exists(self.path(n)) for n in ("t1", "t2", "t3")],
            )

        async def schema(side: Side) -> Any:
            found_id, found = await side.backend.get_schema(self.path(name), schema_id)
            return found_id, [(c.name, c.id, str(c.type)) for c in found.columns]

        self.do(seen)
        self.do(schema)
        if odd is not None:
            self._odd_database(odd)

    def _odd_database(self, name: str) -> None:
        descriptor = DatabaseDescriptor("a comment", {"x": "y"})
        own = f"{self.database}_{name}" if name == "d1" else name
        self.do(lambda s: s.backend.create_database(own, descriptor, False))

        async def info(side: Side) -> Any:
            return (await side.backend.get_database_info(own)).descriptor

        self.do(info)
        self.do(lambda s: s.backend.drop_database(own, False, False))

    # Rows

    @precondition(lambda self: self.of_kind("log"))
    @rule(data=st.data(), batches=st.lists(log_rows, min_size=1, max_size=3))
    def append_rows(self, data: st.DataObject, batches: list[list[dict[str, Any]]]) -> None:
        name = data.draw(st.sampled_from(self.of_kind("log")))
        bucket = data.draw(st.integers(0, self.pair.real.tables[name].num_buckets - 1))
        for rows in batches:
            if not rows:
                self.hollow.add(name)
            self.do(
                lambda s, r=rows: append(s.backend, s.tables[name], r, place=s.place(name, bucket))
            )

    @precondition(lambda self: self.of_kind("keys"))
    @rule(data=st.data(), batches=key_batches)
    def upsert_rows(self, data: st.DataObject, batches: list[Any]) -> None:
        name = data.draw(st.sampled_from(self.of_kind("keys")))
        for records, columns in batches:
            rows = [row for _, row in records]
            deletes = [delete for delete, _ in records]
            self.do(
                lambda s, r=rows, d=deletes, c=columns: upsert(
                    s.backend, s.tables[name], r, d, targets=c
                )
            )

    @precondition(lambda self: self.of_kind("keys"))
    @rule(data=st.data(), batches=key_batches)
    def upsert_more_rows(self, data: st.DataObject, batches: list[Any]) -> None:
        self.upsert_rows(data, batches)

    @precondition(lambda self: self.of_kind("log", "keys"))
    @rule(data=st.data(), steps=st.lists(sequence_steps, min_size=1, max_size=8))
    def send_numbered(self, data: st.DataObject, steps: list[int]) -> None:
        """Batches of an idempotent writer: the next, one again, one too old, one too early."""
        name = data.draw(st.sampled_from(self.of_kind("log", "keys")))
        known = f"{name} {self.pair.real.tables[name].table_id}"
        for step in steps:
            sequence = max(0, self.sequences.get(known, -1) + step)
            answer = self.do(lambda s, q=sequence: self._send(s, name, known, q))
            if isinstance(answer, int) and step == 1:
                self.sequences[known] = sequence

    async def _send(self, side: Side, name: str, known: str, sequence: int) -> Any:
        held = (side.name, known)
        if held not in self.writers:
            self.writers[held] = await side.backend.init_writer([self.path(name)])
        table, writer = side.tables[name], self.writers[held]
        if self.live[name] == "log":
            rows = [{"id": sequence, "name": "numbered"}] * 2
            return await append(side.backend, table, rows, writer_id=writer, sequence=sequence)
        rows = [{"k": sequence, "a": "numbered", "b": None}]
        return await upsert(side.backend, table, rows, writer_id=writer, sequence=sequence)

    # Partitions

    @precondition(lambda self: self.of_kind("parted"))
    @rule(
        data=st.data(),
        steps=st.lists(
            st.tuples(st.sampled_from(["create", "drop", "append"]), values, st.booleans()),
            min_size=1,
            max_size=4,
        ),
    )
    def use_partitions(self, data: st.DataObject, steps: list[tuple[str, str, bool]]) -> None:
        name = data.draw(st.sampled_from(self.of_kind("parted")))
        path = self.path(name)
        for what, value, ignore in steps:
            spec = {"p": value}
            if what == "drop":
                self.do(lambda s, d=spec, i=ignore: s.backend.drop_partition(path, d, i))
            elif what == "append":
                self.do(lambda s, v=value: self._append_to(s, name, v))
            elif (
                self.do(lambda s, d=spec, i=ignore: s.backend.create_partition(path, d, i)) is None
            ):
                self.each(lambda s, v=value: self._partition_ready(s, name, v))

    async def _partition_ready(self, side: Side, name: str, value: str) -> None:
        partition = await side.backend.partition_id(side.tables[name], value)
        await side.until_ready(name, partition)

    async def _append_to(self, side: Side, name: str, value: str) -> Any:
        table = side.tables[name]
        place = side.place(name, 0, await side.backend.partition_id(table, value))
        await append(side.backend, table, [{"id": 1, "p": value}], place=place)
        return await read_log(side.backend, table, place)

    @rule(name=names, spec=st.sampled_from([None, {"p": "a"}, {"p": "zz"}]))
    def list_partitions(self, name: str, spec: dict[str, str] | None) -> None:
        async def listed(side: Side) -> Any:
            found = await side.backend.list_partitions(self.path(name), spec)
            return sorted((p.partition_name, tuple(p.spec.items())) for p in found)

        self.do(listed)

    # Reading

    @precondition(lambda self: self.of_kind("log", "keys"))
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.of_kind("log", "keys")))
        self._compare_rows(name)

    def _compare_rows(self, name: str) -> None:
        async def rows(side: Side) -> Any:
            table, found = side.tables[name], []
            for bucket in range(table.num_buckets):
                place = side.place(name, bucket)
                found.append(await read_log(side.backend, table, place))
            return found

        async def offsets(side: Side) -> Any:
            table = side.tables[name]
            buckets = list(range(table.num_buckets))
            return [
                await side.backend.list_offsets(table, None, buckets, spec)
                for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.timestamp(1))
            ]

        self.do(rows)
        self.do(offsets)

        async def future(side: Side) -> Any:
            spec = OffsetSpec.timestamp(1 << 50)
            return await side.backend.list_offsets(side.tables[name], None, [0], spec)

        self.do(future)

    @precondition(lambda self: self.of_kind("log", "keys"))
    @rule(data=st.data(), offset=st.integers(-3, 40), columns=st.sampled_from([None, (0,), (1,)]))
    def read_from(self, data: st.DataObject, offset: int, columns: tuple[int, ...] | None) -> None:
        name = data.draw(st.sampled_from(self.of_kind("log", "keys")))
        if name in self.hollow:
            # A server fails to project batches that were appended without rows.
            columns = None
        self.do(lambda s: read_log(s.backend, s.tables[name], s.place(name, 0), offset, columns))

    @precondition(lambda self: self.of_kind("log", "keys"))
    @rule(data=st.data(), limit=st.sampled_from([1, 2, 5, 1000]))
    def limit_scan(self, data: st.DataObject, limit: int) -> None:
        name = data.draw(st.sampled_from(self.of_kind("log", "keys")))

        async def scanned(side: Side) -> Any:
            place = side.place(name, 0)
            return (
                await side.backend.limit_scan(side.tables[name], place, limit, None)
            ).to_pylist()

        self.do(scanned)

    @precondition(lambda self: self.of_kind("keys"))
    @rule(data=st.data(), wanted=st.lists(st.integers(0, 5) | st.integers(0, 300), max_size=6))
    def look_up(self, data: st.DataObject, wanted: list[int]) -> None:
        name = data.draw(st.sampled_from(self.of_kind("keys")))

        async def found(side: Side) -> Any:
            table, place = side.tables[name], side.place(name, 0)
            keys = keys_of(table, [{"k": k} for k in wanted])
            node = await side.backend.locate(table, place)
            answer = (await side.backend.lookup(table, node, {place: keys}))[place]
            if answer.error is not None:
                raise answer.error
            rows = await side.backend.decode_values(table, answer.values, None)
            return answer.counts.tolist(), rows.to_pylist()

        self.do(found)

    def _compare_statistics(self, name: str) -> None:
        async def counted(side: Side) -> Any:
            place = side.place(name, 0)
            return (await side.backend.get_table_stats(side.tables[name], [place]))[place]

        self.do(counted)

    # The end

    def teardown(self) -> None:
        try:
            for name, kind in self.live.items():
                if kind != "parted":
                    self._compare_rows(name)
                    self._compare_statistics(name)
                if kind == "keys":
                    self.do(lambda s, n=name: key_state(s.backend, s.tables[n], s.place(n, 0)))
        finally:
            self.do(lambda s: s.backend.drop_database(self.database, False, True))


@pytest.fixture
def pair(plain_cluster: LocalCluster, tmp_path: Path) -> Iterator[tuple[Pair, LoopThread]]:
    """Both backends, open on one loop."""
    loop = LoopThread()
    address = plain_cluster.info.bootstrap_servers
    embedded = {"bootstrap.servers": f"embedded:{tmp_path}", "embedded.synchronous": "off"}
    sides = [
        Side(name, loop.run(open_backend(Config(keys))), {})
        for name, keys in (("cluster", {"bootstrap.servers": address}), ("embedded", embedded))
    ]
    yield Pair(*sides), loop
    for side in sides:
        loop.run(side.backend.close())
    loop.close()


@pytest.mark.timeout(3600)
def test_random_programs_agree(pair: tuple[Pair, LoopThread], long_form: bool) -> None:
    programs = PROGRAMS_LONG if long_form else PROGRAMS_SHORT

    class Bound(Programs):
        pass

    Bound.pair, Bound.loop = pair
    run_state_machine_as_test(
        Bound,
        settings=settings(
            max_examples=programs,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        ),
    )
