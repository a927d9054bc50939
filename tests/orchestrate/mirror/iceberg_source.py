"""A key table with random changes, the model of its rows, and independent reads of its mirror."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from fluss_client import ChangeType, FlussConnection, FlussTable, RecordBatch, TableBucket
from fluss_client.engine import read_ranges
from fluss_client.runtime import runtime
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.sinks import IcebergSink
from tests.orchestrate.incremental.events import EventTables
from tests.orchestrate.lake.test_tiering import load_extensions

Key = tuple[str, int]
Model = dict[Key, dict[str, Any]]
Offsets = dict[tuple[int | None, int], int]
REGIONS = ("north", "south", "west")
TABLE = "mirrors.shop"
COLUMNS = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),
        pa.field("id", pa.int32(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("seen", pa.timestamp("us")),
    ]
)


def catalog_properties(folder: Path) -> dict[str, str]:
    """A catalog in a file of the folder."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db?timeout=60",
        "warehouse": f"file://{folder}",
    }


def mirror_sink(folder: Path, **options: Any) -> IcebergSink:
    """A mirror in that catalog."""
    options.setdefault("form", "mirror")
    return IcebergSink(catalog_properties(folder), TABLE, **options)


class Source:
    """A key table; `model` has its rows as the changes leave them."""

    def __init__(
        self, connection: FlussConnection, database: str, *, partitioned: bool, buckets: int = 2
    ) -> None:
        self.tables = EventTables(connection, connection.get_admin().result(), database)
        self.connection = connection
        self.partitioned = partitioned
        options: dict[str, Any] = {"buckets": buckets}
        if partitioned:
            options["partition_keys"] = ["region"]
            options["partitions"] = [{"region": region} for region in REGIONS]
        self.table: FlussTable = self.tables.sure(COLUMNS, ["region", "id"], **options)
        self.path = self.table.get_table_path()
        self.there = set(REGIONS)
        self.model: Model = {}

    def row(self, chance: random.Random, keys: int) -> dict[str, Any]:
        """A row with a random key."""
        row = {
            "region": chance.choice(sorted(self.there)),
            "id": chance.randrange(keys),
            "name": chance.choice([None, f"n{chance.randrange(100)}"]),
            "price": Decimal(chance.randrange(10_000)) / 100,
            "seen": None,
        }
        for column in self.table.get_table_info().schema.get_column_names()[len(COLUMNS) :]:
            row[column] = chance.choice([None, chance.randrange(1000)])
        return row

    def change(self, chance: random.Random, count: int, keys: int = 12) -> None:
        """Make random changes: inserts, updates, deletes, partial updates, keys that return."""
        for _ in range(count):
            row = self.row(chance, keys)
            key = (row["region"], row["id"])
            kind = chance.random()
            if kind < 0.3:
                self.tables.delete(self.table, [{"region": key[0], "id": key[1]}])
                self.model.pop(key, None)
            elif kind < 0.45 and key in self.model:
                part = {name: row[name] for name in ("region", "id", "name")}
                self.tables.upsert(self.table, [part], ["region", "id", "name"])
                self.model[key] = {**self.model[key], **part}
            else:
                self.tables.upsert(self.table, [row])
                self.model[key] = row

    def add_column(self, name: str) -> None:
        """Add a column; rows that exist have no value in it."""
        self.tables.admin.alter_table(self.path, add_columns=[pa.field(name, pa.int64())]).result()
        self.table = self.tables.open(self.path)
        self.model = {key: {**row, name: None} for key, row in self.model.items()}

    def drop(self, region: str) -> None:
        """Drop a partition with its rows."""
        self.tables.admin.drop_partition(self.path, {"region": region}).result()
        self.there.discard(region)
        self.model = {key: row for key, row in self.model.items() if key[0] != region}

    def rescale(self, count: int) -> None:
        """Give partitions that are created from now on another bucket count."""
        self.tables.admin.alter_table(self.path, bucket_count=count).result()

    def create(self, region: str) -> None:
        """Create a partition."""
        self.tables.admin.create_partition(self.path, {"region": region}).result()
        self.there.add(region)

    def at(self, offsets: Offsets) -> Model:
        """The rows at some offsets, by replaying the changelog."""
        info = self.table.get_table_info()
        ranges = {
            TableBucket(info.table_id, bucket, partition_id=partition_id): (0, end)
            for (partition_id, bucket), end in offsets.items()
        }

        async def changes() -> list[RecordBatch]:
            config = self.connection.config
            backend = self.tables.connection.backend
            return [b async for b in read_ranges(backend, info, ranges, config=config)]

        found: Model = {}
        for batch in runtime().call(changes()):
            assert batch.change_types is not None
            kinds = batch.change_types.to_pylist()
            for kind, row in zip(kinds, batch.batch.to_pylist(), strict=True):
                key = (row["region"], row["id"])
                if kind in (ChangeType.Delete, ChangeType.UpdateBefore):
                    found.pop(key, None)
                else:
                    found[key] = row
        return found


def as_model(rows: pa.Table) -> Model:
    """Rows by key, without nulls; a key that has two rows is an error."""
    found = {(row["region"], row["id"]): row for row in rows.to_pylist()}
    assert len(found) == rows.num_rows, "a key has two rows"
    return without_nulls(found)


def without_nulls(model: Model) -> Model:
    """The values that are there: a column that no plan has brought yet has none."""
    return {
        key: {name: value for name, value in row.items() if value is not None}
        for key, row in model.items()
    }


class Duck:
    """Reads Iceberg tables with DuckDB, which applies equality deletes."""

    def __init__(self) -> None:
        self._duck = duckdb.connect()
        load_extensions(self._duck)

    def rows(self, folder: Path) -> Model:
        """The rows of the mirror in a folder."""
        catalog = open_catalog(catalog_properties(folder))
        # The mirror of an empty table is made with the first rows.
        table = catalog.load_table(TABLE) if catalog.table_exists(TABLE) else None
        if table is None or table.current_snapshot() is None:
            return {}
        found = self._duck.execute(f"SELECT * FROM iceberg_scan('{table.metadata_location}')")
        return as_model(found.to_arrow_table())

    def close(self) -> None:
        self._duck.close()


def pyiceberg_rows(folder: Path) -> Model:
    """The rows by pyiceberg, which cannot apply equality deletes."""
    return as_model(open_catalog(catalog_properties(folder)).load_table(TABLE).scan().to_arrow())
