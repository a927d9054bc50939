"""A key table that is changed at random, and a model of its rows at every offset.

The model applies each operation to plain dictionaries, one per bucket, and notes them under the
offset that the bucket's log has after the operation. So the rows at the offsets of any plan are
known without reading them from Fluss. (Plans end between batches, and each operation is one.)
"""

from __future__ import annotations

import decimal
import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from fluss_client import OffsetSpec
from fluss_client.engine import Placement, backend_of, bucket_counts, run_blocking
from fluss_orchestrate.core.checkpoints.position import TablePosition
from tests.contract.tables import Tables, done

Row = dict[str, Any]
Key = tuple[Any, ...]
Place = tuple[int | None, int]
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "text": pa.string(),
    "amount": pa.decimal128(20, 2),
    "raw": pa.binary(),
    "day": pa.string(),
}
DAYS = ("d1", "d2", "d3")
KEYS = 24
BUCKETS_MAX = 5
"""The largest bucket count that a partition gets."""


class KeyedModel:
    """The table and its model."""

    def __init__(
        self,
        tables: Tables,
        rng: random.Random,
        *,
        partitioned: bool = False,
        buckets: int = 2,
        **descriptor: Any,
    ) -> None:
        self._tables = tables
        self._backend = backend_of(tables.connection)
        self._rng = rng
        self._days: list[str] = ["d1", "d2"] if partitioned else []
        self.partitioned = partitioned
        self.keeps_days = False
        """Whether partitions must stay as they are for now."""
        self.key = ["day", "id"] if partitioned else ["id"]
        self.table = tables.create(
            COLUMNS,
            self.key,
            buckets=buckets,
            partition_keys=["day"] if partitioned else None,
            bucket_keys=["id"],
            partitions=[{"day": day} for day in self._days],
            **descriptor,
        )
        self.path = str(self.table.get_table_path())
        self.rows: dict[Place, dict[Key, Row]] = {}
        self.at: dict[Place, dict[int, dict[Key, Row]]] = {}
        self._ids: dict[str | None, int | None] = {}
        self._learn()

    @property
    def partition_ids(self) -> set[int | None]:
        """The partitions that are there."""
        return set(self._ids.values())

    @property
    def columns(self) -> list[str]:
        return list(self.table.arrow_schema.names)

    def _learn(self) -> None:
        """Look up the schema and the partitions anew."""
        self.table = self._tables.reopen(self.table)
        self._ids = {None: None}
        if self.partitioned:
            found = done(self._tables.admin.list_partition_infos(self.table.get_table_path()))
            self._ids = {p.partition_name: p.partition_id for p in found}
        info = self.table.get_table_info()
        self._placement = Placement(info)
        self._counts = run_blocking(bucket_counts(self._backend, info))
        for partition_id, count in self._counts.items():
            for bucket in range(count):
                self.rows.setdefault((partition_id, bucket), {})
        self._note()

    def _note(self) -> None:
        """Note the rows of each bucket under the offset that its log has now."""
        info = self.table.get_table_info()
        for partition_id, count in self._counts.items():
            found = run_blocking(
                self._backend.list_offsets(info, partition_id, range(count), OffsetSpec.latest())
            )
            for bucket, offset in found.items():
                place = (partition_id, bucket)
                self.at.setdefault(place, {})[offset] = dict(self.rows[place])

    def _places(self, rows: list[Row]) -> list[Place]:
        # Only the columns that place rows count; nulls stand for the others.
        places = []
        for row in rows:
            batch = pa.RecordBatch.from_pylist([row], self.table.arrow_schema)
            partition_id = self._ids[row["day"] if self.partitioned else None]
            found = self._placement.buckets(batch, self._counts[partition_id])
            places.append((partition_id, 0 if found is None else int(found[0])))
        return places

    def _key_of(self, row: Mapping[str, Any]) -> Key:
        return tuple(row[name] for name in self.key)

    def _random_key(self) -> Row:
        day = self._rng.choice(self._days) if self.partitioned else self._rng.choice(DAYS)
        return {"id": self._rng.randrange(KEYS), "day": day}

    def _random_row(self) -> Row:
        rng = self._rng
        row: Row = dict.fromkeys(self.columns)
        row |= self._random_key()
        row["text"] = rng.choice([None, "", "plain", 'quote" , \n\\.\nline', f"v{rng.random()}"])
        row["amount"] = rng.choice([None, decimal.Decimal(rng.randrange(-(10**12), 10**12)) / 100])
        row["raw"] = rng.choice([None, b"", rng.randbytes(rng.randrange(6))])
        for name in self.columns:
            if name.startswith("more"):
                row[name] = rng.choice([None, rng.randrange(100)])
        return row

    def upsert(self, count: int) -> None:
        """Upsert random rows, one batch per bucket; a key may occur more than once."""
        if self.partitioned and not self._days:
            return
        rows = [self._random_row() for _ in range(count)]
        self._tables.upsert(self.table, pa.Table.from_pylist(rows, self.table.arrow_schema))
        for row, place in zip(rows, self._places(rows), strict=True):
            self.rows[place][self._key_of(row)] = row
        self._note()

    def update_text(self) -> None:
        """Write one column of some rows only."""
        if self.partitioned and not self._days:
            return
        keys = [self._random_row() for _ in range(3)]
        names = [*self.key, "text"]
        given = [{name: row[name] for name in names} for row in keys]
        schema = pa.schema([self.table.arrow_schema.field(name) for name in names])
        self._tables.upsert(self.table, pa.Table.from_pylist(given, schema), names)
        for row, place in zip(keys, self._places(keys), strict=True):
            before = self.rows[place].get(self._key_of(row), dict.fromkeys(self.columns))
            key = {name: row[name] for name in self.key}
            self.rows[place][self._key_of(row)] = {**before, **key, "text": row["text"]}
        self._note()

    def delete(self, count: int) -> None:
        """Delete random keys, of which some have no row."""
        if self.partitioned and not self._days:
            return
        for _ in range(count):
            # One by one: a writer may send several in more than one batch.
            row = dict.fromkeys(self.columns) | self._random_key()
            self._tables.delete(self.table, [{name: row[name] for name in self.key}])
            (place,) = self._places([row])
            self.rows[place].pop(self._key_of(row), None)
            self._note()

    def add_column(self) -> None:
        """Add a column to the table."""
        if len(self.columns) > len(COLUMNS) + 2:
            return
        name = f"more{len(self.columns)}"
        path = self.table.get_table_path()
        done(self._tables.admin.alter_table(path, add_columns=[pa.field(name, pa.int32())]))
        for rows in self.rows.values():
            for row in rows.values():
                row[name] = None
        for noted in self.at.values():
            for rows in noted.values():
                for key, row in rows.items():
                    rows[key] = {**row, name: None}
        self._learn()

    def change_days(self) -> None:
        """Drop a partition, or create one; a dropped one may come back with other rows."""
        if not self.partitioned or self.keeps_days:
            return
        day, path = self._rng.choice(DAYS), self.table.get_table_path()
        if day in self._days:
            done(self._tables.admin.drop_partition(path, {"day": day}))
            self._days.remove(day)
        else:
            self._rescale()
            done(self._tables.admin.create_partition(path, {"day": day}))
            self._days.append(day)
        self._learn()

    def _rescale(self) -> None:
        """Give partitions that are created from now on another bucket count, where that works."""
        if self._backend.capabilities.rescaling:
            count = self._rng.randrange(1, BUCKETS_MAX + 1)
            path = self.table.get_table_path()
            done(self._tables.admin.alter_table(path, bucket_count=count))

    def step(self) -> None:
        """Do one operation."""
        kind = self._rng.choices(
            ["upsert", "update", "delete", "column", "days"], [8, 3, 5, 0.5, 1.5]
        )[0]
        if kind == "upsert":
            self.upsert(self._rng.randrange(1, 9))
        elif kind == "update":
            self.update_text()
        elif kind == "delete":
            self.delete(self._rng.randrange(1, 4))
        elif kind == "column":
            self.add_column()
        else:
            self.change_days()

    def expected(self, position: TablePosition) -> list[tuple[Any, ...]]:
        """The rows at the offsets of a position, sorted by key."""
        found: dict[Key, Row] = {}
        for place, offset in position.offsets.items():
            assert offset in self.at[place], (place, offset, sorted(self.at[place]))
            found.update(self.at[place][offset])
        return sorted_rows([tuple(row[n] for n in self.columns) for row in found.values()])


def sorted_rows(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows by their keys: the columns `id` and `day`."""
    names = list(COLUMNS)
    return sorted(rows, key=lambda row: (row[names.index("id")], row[names.index("day")]))
