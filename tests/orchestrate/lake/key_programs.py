"""Key tables with a lake, random programs over them, and a model of what each reader must give."""

from __future__ import annotations

import decimal
import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from fluss_client.errors import LakeTableAlreadyExistError, TableNotReadyError
from fluss_orchestrate.core.lake import (
    LakeTarget,
    freeze_target,
    load_lake_table,
    read_table,
    read_with_deletes,
    tier_table,
)

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("small", pa.int8()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("at", pa.timestamp("ms")),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)
DAYS = ("20240101", "20240102")
KEYS = 24
WAL = {"table.changelog.image": "WAL"}
FIRST_ROW = {"table.merge-engine": "first_row"}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partitioned": True},
    "wal": {"properties": WAL},
    "first_row": {"properties": FIRST_ROW},
}
CREATE_ATTEMPTS_MAX = 5

Row = tuple[Any, ...]
Model = dict[Any, Row]


@dataclass
class KeyTable:
    """A key table, and the rows that it must hold."""

    connection: FlussConnection
    path: TablePath
    partitioned: bool = False
    keeps_first: bool = False
    without_old_rows: bool = False
    model: Model = field(default_factory=dict)
    in_lake: Model = field(default_factory=dict)
    number: int = 0
    snapshots: set[int] = field(default_factory=set)
    """The lake snapshots that rounds of this object made."""
    journal: list[tuple[Any, Row | None]] = field(default_factory=list)
    """Each change before it is written: a key, and its row or None."""
    acknowledged: int = 0
    """How many changes of the journal are certainly in the table."""
    rounds: list[Model] = field(default_factory=list)
    """What the lake holds after each round, written down before the round."""
    rounds_done: int = 0

    def key_of(self, row: Row) -> Any:
        return (row[1], row[0]) if self.partitioned else row[0]

    def row(self, key: int) -> Row:
        self.number += 1
        n = self.number
        day = DAYS[key % 2]
        tags = None if n % 5 == 0 else [f"t{n}", None][: n % 3]
        return (
            key,
            day,
            None if n % 7 == 0 else f"name {n}",
            n % 100,
            decimal.Decimal(n) / 4,
            n,
            tags,
        )

    def upsert(self, keys: list[int]) -> None:
        """Upsert new rows of these keys; a key may occur more than once."""
        rows = [self.row(key) for key in keys]
        if not rows:
            return
        columns = zip(*rows, strict=True)
        batch = pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, COLUMNS, strict=True)],
            schema=COLUMNS,
        )
        written = [tuple(map(_plain, row.values())) for row in batch.to_pylist()]
        self.journal += [(self.key_of(values), values) for values in written]
        writer = self.connection.get_table(self.path).result().new_upsert().create_writer()
        writer.write_arrow_batch(batch)
        writer.flush().result()
        self.acknowledged = len(self.journal)
        for values in written:
            if not self.keeps_first or self.key_of(values) not in self.model:
                self.model[self.key_of(values)] = values

    def delete(self, keys: list[int]) -> None:
        """Delete these keys; some may not be there."""
        if self.keeps_first:
            return
        columns = {"id": pa.array(keys, pa.int32())}
        if self.partitioned:
            columns["day"] = pa.array([DAYS[key % 2] for key in keys])
        gone = [(DAYS[key % 2], key) if self.partitioned else key for key in keys]
        self.journal += [(key, None) for key in gone]
        writer = self.connection.get_table(self.path).result().new_upsert().create_writer()
        writer.delete_arrow(pa.RecordBatch.from_pydict(columns))
        writer.flush().result()
        self.acknowledged = len(self.journal)
        for key in gone:
            self.model.pop(key, None)

    def tier(self) -> Any:
        self.rounds.append(dict(self.model))
        receipt = tier_table(self.connection, self.path, allow_tiering=True)
        self.in_lake = dict(self.model)
        self.rounds_done = len(self.rounds)
        if receipt.snapshot_id is not None:
            self.snapshots.add(receipt.snapshot_id)
        return receipt

    def check_lake_beside(self) -> None:
        """A read of the lake gives what a round left that was the last one during the read."""
        first = self.rounds_done
        found = self.rows(read="lake")
        possible = self.rounds[max(0, first - 1) :]
        assert found in possible, f"no round of {len(possible)} left {found}"

    def check_union_beside(self) -> None:
        """A union read gives a row of each key that the key had during the read."""
        first = self.acknowledged
        before = dict(self.journal[:first])
        found = self.rows(read="union")
        possible = {key: [row] for key, row in before.items()}
        for key, row in self.journal[first:]:
            possible.setdefault(key, [None]).append(row)
        for key in {*found, *possible}:
            rows = possible.get(key, [None])
            assert found.get(key) in rows, f"key {key} never had {found.get(key)}, but {rows}"

    def iceberg(self) -> Any:
        info = self.connection.get_admin().result().get_table_info(self.path).result()
        return load_lake_table(info, "default")

    def rows(self, **options: Any) -> Model:
        """What `read_table` gives; an assertion fails if a key comes twice."""
        return self.by_key(read_table(self.connection, self.path, **options).read_all())

    def by_key(self, found: pa.Table) -> Model:
        rows = [tuple(map(_plain, r.values())) for r in found.select(COLUMNS.names).to_pylist()]
        assert len({self.key_of(r) for r in rows}) == len(rows)
        return {self.key_of(r): r for r in rows}

    def check(self) -> None:
        """Every reader gives what it must."""
        assert self.rows(read="union") == self.model
        assert self.rows() == self.model
        self.check_lake()

    def check_lake(self) -> None:
        """The lake holds what was there at the last round of tiering."""
        table = self.iceberg()
        if table.current_snapshot() is not None:
            found = read_with_deletes(table).read_all()
            assert self.by_key(found.cast(_lake_schema(found.schema))) == self.in_lake
            assert self.rows(read="lake") == self.in_lake

    def check_lake_files(self) -> None:
        """The newest snapshot of Iceberg holds what was there at the last round."""
        found = read_with_deletes(self.iceberg()).read_all()
        assert self.by_key(found.cast(_lake_schema(found.schema))) == self.in_lake

    def moment(self) -> tuple[LakeTarget, Model]:
        """Where the table is now, and its rows."""
        return freeze_target(self.connection, self.path, "latest"), dict(self.model)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _lake_schema(found: pa.Schema) -> pa.Schema:
    """Iceberg's types of the columns as Fluss has them."""
    wanted = {f.name: f for f in COLUMNS}
    return pa.schema([wanted.get(f.name, f) for f in found])


def make_key_table(
    connection: FlussConnection,
    database: str,
    name: str = "k",
    *,
    partitioned: bool = False,
    buckets: int = 2,
    properties: dict[str, str] | None = None,
    freshness: str = "1d",
) -> KeyTable:
    """Create a key table with a lake."""
    admin = connection.get_admin().result()
    descriptor = TableDescriptor(
        Schema(COLUMNS, primary_keys=["day", "id"] if partitioned else ["id"]),
        partition_keys=["day"] if partitioned else [],
        bucket_count=buckets,
        bucket_keys=["id"],
        properties={
            "table.datalake.enabled": "true",
            "table.datalake.freshness": freshness,
            **(properties or {}),
        },
    )
    for attempt in range(CREATE_ATTEMPTS_MAX):
        path = TablePath(database, f"{name}{attempt}")
        try:
            admin.create_table(path, descriptor).result()
        except (LakeTableAlreadyExistError, TableNotReadyError):
            # The coordinator missed the table; its Iceberg table is in the way of another try.
            continue
        if partitioned:
            for day in DAYS:
                admin.create_partition(path, {"day": day}, ignore_if_exists=True).result()
        return KeyTable(connection, path, partitioned, properties == FIRST_ROW, properties == WAL)
    raise AssertionError("no lake table could be created")


def run_program(table: KeyTable, seed: int, steps: int = 8, maintain: Any = None) -> None:
    """Write, delete, tier and read in a random order; every read equals the model."""
    choose = random.Random(seed)
    moments = []
    acts = ["upsert"] * 4 + ["delete"] * 2 + ["tier"] * 3 + ["check"] + ["maintain"]
    # Without old rows, only a moment that a lake snapshot is not later than can be read again.
    always = not table.without_old_rows
    for _ in range(steps):
        act = choose.choice(acts)
        keys = [choose.randrange(KEYS) for _ in range(choose.randrange(1, 15))]
        if act == "upsert":
            table.upsert(keys)
        elif act == "delete":
            table.delete(sorted(set(keys)))
        elif act == "tier":
            table.tier()
        elif act == "maintain" and maintain is not None:
            maintain(table)
            table.check_lake()
        elif act == "check":
            table.check()
        if act == "tier" or always:
            moments.append(table.moment())
    table.check()
    for target, wanted in [*choose.sample(moments, min(1, len(moments))), *moments[-1:]]:
        assert table.rows(read="union", as_of=target) == wanted
    table.tier()
    table.check()
