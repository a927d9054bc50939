"""Row deltas and copy-on-write: what is read back equals a model, at every snapshot."""

from __future__ import annotations

import json
import random
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import GreaterThan
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from fluss_client.errors import RowError
from fluss_orchestrate.core.lake import (
    CommitConflictError,
    EqualityDeleteError,
    RowDelta,
    RowDeltaError,
    RowDeltaWriter,
    commit_row_delta,
    read_with_deletes,
)
from fluss_orchestrate.core.lake.layout.iceberg_schema import partition_spec
from fluss_orchestrate.core.lake.table_changes import TableChange, commit_change
from fluss_orchestrate.core.sinks.copy_on_write import CopyWriter, rewrite_without
from tests.orchestrate.lake.test_tiering import load_extensions

KEYS = ["name", "id"]
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=True),
    NestedField(3, "value", LongType(), required=False),
    NestedField(4, "share", DoubleType(), required=False),
)
COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("value", pa.int64()),
        pa.field("share", pa.float64()),
    ]
)
LAYOUTS = {"whole": [], "bucketed": ["bucket(4, id)"], "both": ["name", "bucket(3, id)"]}
Model = dict[tuple[str, int], tuple[int | None, float]]


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    made = SqlCatalog("tests", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("db")
    yield made
    made.engine.dispose()


def make(catalog: Any, layout: str = "bucketed", **properties: str) -> Any:
    terms = LAYOUTS[layout]
    spec = partition_spec(SCHEMA, terms) if terms else UNPARTITIONED_PARTITION_SPEC
    return catalog.create_table(
        ("db", f"t{uuid.uuid4().hex[:8]}"),
        SCHEMA,
        partition_spec=spec,
        properties={"format-version": "2", **properties},
    )


def batch(rows: Model) -> pa.RecordBatch:
    columns = [
        [key[1] for key in rows],
        [key[0] for key in rows],
        [row[0] for row in rows.values()],
        [row[1] for row in rows.values()],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)


def as_model(rows: pa.Table) -> Model:
    found = {(r["name"], r["id"]): (r["value"], r["share"]) for r in rows.to_pylist()}
    assert len(found) == rows.num_rows, "a key has two rows"
    return found


def program(seed: int, rounds: int) -> list[tuple[Model, list[tuple[str, int]]]]:
    """For each round, rows to upsert and keys to delete; keys come back after deletes."""
    chance = random.Random(seed)
    space = [(f"n{n}", i) for n in range(3) for i in range(chance.randint(3, 25))]
    made = []
    for _ in range(rounds):
        touched = chance.sample(space, chance.randint(1, len(space)))
        cut = chance.randint(0, len(touched))
        ups: Model = {
            k: (chance.choice([None, chance.randint(0, 9)]), chance.random()) for k in touched[:cut]
        }
        made.append((ups, touched[cut:]))
    return made


def apply_delta(table: Any, ups: Model, gone: list[tuple[str, int]], **properties: str) -> int:
    writer = RowDeltaWriter(table, KEYS, "round")
    if ups:
        writer.upsert(batch(ups))
    if gone:
        writer.delete(batch(dict.fromkeys(gone, (None, 0.0))))
    return commit_row_delta(table, writer.close(), properties)


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_random_programs(catalog: Any, layout: str, long_form: bool) -> None:
    for seed in range(60 if long_form else 2):
        print("seed", seed)
        table = make(catalog, layout)
        model: Model = {}
        seen: list[tuple[int, Model]] = []
        for ups, gone in program(seed, 8 if long_form else 4):
            snapshot = apply_delta(table, ups, gone)
            table.refresh()
            for key in gone:
                model.pop(key, None)
            model |= ups
            seen.append((snapshot, dict(model)))
            assert as_model(read_with_deletes(table).read_all()) == model
        for snapshot, then in seen:
            found = read_with_deletes(table, snapshot_id=snapshot, keys_max=5).read_all()
            assert as_model(found) == then
        values = read_with_deletes(table, ["value"], GreaterThan("value", 4), keys_max=3).read_all()
        assert values.column_names == ["value"]
        expected = sorted(v for v, _ in model.values() if v is not None and v > 4)
        assert sorted(values.column("value").to_pylist()) == expected


def copy_on_write(table: Any, ups: Model, gone: list[tuple[str, int]], **properties: str) -> None:
    writer = CopyWriter(table, KEYS, "round")
    if ups:
        writer.upsert(batch(ups))
    if gone:
        writer.delete(batch(dict.fromkeys(gone, (None, 0.0))))
    delta = writer.close()
    with closing(writer.touched):
        data, removed = rewrite_without(table, writer.touched, None, "round")
    commit_change(
        table,
        TableChange(
            [*delta.data, *data], removed=removed, summary=properties, properties=properties
        ),
    )


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_copy_on_write_is_read_by_pyiceberg(catalog: Any, layout: str, long_form: bool) -> None:
    for seed in range(30 if long_form else 2):
        print("seed", seed)
        table = make(catalog, layout)
        model: Model = {}
        for number, (ups, gone) in enumerate(program(seed, 8 if long_form else 3)):
            copy_on_write(table, ups, gone, plan=str(number))
            table.refresh()
            for key in gone:
                model.pop(key, None)
            model |= ups
            assert as_model(table.scan().to_arrow()) == model
            assert table.properties["plan"] == str(number)
            assert table.current_snapshot().summary["plan"] == str(number)


def test_duckdb_applies_the_deletes(catalog: Any) -> None:
    table = make(catalog)
    model: Model = {("n", i): (i, i / 2) for i in range(40)}
    apply_delta(table, model, [])
    table.refresh()
    apply_delta(table, {("n", 1): (100, 0.5)}, [("n", 2), ("n", 3)])
    table.refresh()
    with duckdb.connect() as duck:
        load_extensions(duck)
        found = duck.execute(f"SELECT * FROM iceberg_scan('{table.metadata_location}')")
        rows = as_model(found.to_arrow_table())
    assert rows == as_model(read_with_deletes(table).read_all())
    assert len(rows) == 38
    assert rows["n", 1] == (100, 0.5)


def test_deletes_by_position_and_a_new_column(catalog: Any, tmp_path: Path) -> None:
    table = make(catalog, "whole")
    writer = RowDeltaWriter(table, KEYS, "first")
    writer.insert(batch({("a", i): (i, 0.0) for i in range(10)}))
    delta = writer.close()
    commit_row_delta(table, delta, {})
    table.refresh()
    (data,) = delta.data
    listed = tmp_path / "positions.parquet"
    pq.write_table(pa.table({"file_path": [data.file_path] * 2, "pos": [3, 4]}), listed)
    positions = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{listed}",
        file_format=FileFormat.PARQUET,
        partition=data.partition,
        record_count=2,
        file_size_in_bytes=listed.stat().st_size,
    )
    commit_row_delta(table, RowDelta([], [positions]), {})
    with catalog.load_table(table.name()).update_schema() as update:
        update.add_column("more", LongType())
    table.refresh()
    apply_delta(table, {("a", 4): (44, 0.0)}, [("a", 0)])
    table.refresh()
    for keys_max in (1, 100):
        found = read_with_deletes(table, keys_max=keys_max).read_all()
        assert found.column("more").null_count == found.num_rows
        rows = as_model(found)
        assert sorted(i for _, i in rows) == [1, 2, 4, 5, 6, 7, 8, 9]
        assert rows["a", 4] == (44, 0.0)


def avro_schema(path: str) -> Any:
    """The schema in the header of an Avro file."""
    raw = Path(path.removeprefix("file://")).read_bytes()
    at = raw.index(b"avro.schema") + len(b"avro.schema")
    size = shift = 0
    while True:
        size |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not raw[at - 1] & 0x80:
            break
    return json.loads(raw[at : at + (size >> 1)])


def test_the_manifest_is_as_java_wants_it(catalog: Any) -> None:
    table = make(catalog, "whole")
    first = RowDeltaWriter(table, KEYS, "first")
    first.insert(batch({("a", 1): (1, 1.0)}))
    commit_row_delta(table, first.close(), {})
    table.refresh()
    assert table.scan().to_arrow().num_rows == 1
    apply_delta(table, {("a", 1): (2, 1.0)}, [("b", 7)], plan="p1")
    table.refresh()
    snapshot = table.current_snapshot()
    assert snapshot.summary.operation.value == "overwrite"
    assert snapshot.summary["plan"] == "p1"
    assert snapshot.summary["added-equality-deletes"] == "2"
    assert snapshot.summary["added-records"] == "1"
    manifests = snapshot.manifests(table.io)
    (deletes,) = [m for m in manifests if m.content == ManifestContent.DELETES]
    fields = {f["name"]: f for f in avro_schema(deletes.manifest_path)["fields"]}
    inner = {f["name"]: f for f in fields["data_file"]["type"]["fields"]}
    (listed,) = [t for t in inner["equality_ids"]["type"] if t != "null"]
    assert (listed["items"], listed["element-id"]) == ("int", 136)
    for entry in deletes.fetch_manifest_entry(table.io):
        assert list(entry.data_file.equality_ids) == [1, 2]
        assert entry.sequence_number == 2


def test_a_commit_that_lost_the_race_leaves_nothing(catalog: Any) -> None:
    table = make(catalog)
    apply_delta(table, {("a", 1): (1, 1.0)}, [])
    stale = catalog.load_table(table.name())
    table.refresh()
    apply_delta(table, {("a", 1): (2, 1.0)}, [])
    with pytest.raises(CommitConflictError):
        apply_delta(stale, {("a", 1): (3, 1.0)}, [])
    found = read_with_deletes(catalog.load_table(table.name())).read_all()
    assert as_model(found) == {("a", 1): (2, 1.0)}


def test_tables_that_cannot_be_replaced_by_key(catalog: Any) -> None:
    with pytest.raises(RowDeltaError, match="format version is 1"):
        RowDeltaWriter(make(catalog, **{"format-version": "1"}), KEYS, "x")
    with pytest.raises(RowDeltaError, match="does not derive from the key"):
        RowDeltaWriter(make(catalog), ["name"], "x")
    with pytest.raises(RowDeltaError, match="no exact equality"):
        RowDeltaWriter(make(catalog, "whole"), ["share"], "x")
    with pytest.raises(RowDeltaError, match="no column 'other'"):
        RowDeltaWriter(make(catalog), ["id", "other"], "x")
    evolved = make(catalog)
    with evolved.update_spec() as update:
        update.add_identity("name")
    with pytest.raises(RowDeltaError, match="partitioning was changed"):
        RowDeltaWriter(catalog.load_table(evolved.name()), KEYS, "x")
    with pytest.raises(RowError, match="null values"):
        RowDeltaWriter(make(catalog), KEYS, "x").delete(
            pa.RecordBatch.from_pydict({"name": [None], "id": [1]})
        )


def test_copy_on_write_refuses_delete_files(catalog: Any) -> None:
    table = make(catalog)
    apply_delta(table, {("a", 1): (1, 1.0)}, [])
    table.refresh()
    apply_delta(table, {}, [("a", 1)])
    table.refresh()
    with pytest.raises(RowDeltaError, match="delete files"):
        copy_on_write(table, {("a", 1): (1, 1.0)}, [])


def test_deletes_that_cannot_be_applied_are_errors(catalog: Any) -> None:
    table = make(catalog, "whole")
    apply_delta(table, {("a", 1): (1, 1.0)}, [])
    table.refresh()
    writer = RowDeltaWriter(table, KEYS, "x")
    writer.delete(batch({("a", 1): (None, 0.0)}))
    delta = writer.close()
    (file,) = delta.deletes
    names = ("file_path", "partition", "record_count", "file_size_in_bytes", "content")
    kept = {name: getattr(file, name) for name in names}
    avro = DataFile.from_args(file_format=FileFormat.AVRO, equality_ids=[1, 2], **kept)
    commit_row_delta(table, RowDelta([], [avro]), {})
    table.refresh()
    with pytest.raises(EqualityDeleteError, match="only Parquet"):
        read_with_deletes(table)

    other = make(catalog, "whole")
    apply_delta(other, {("a", 1): (1, 1.0)}, [])
    other.refresh()
    apply_delta(other, {}, [("a", 1)])
    other.refresh()
    with other.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("name")
    with pytest.raises(EqualityDeleteError, match="was dropped"):
        read_with_deletes(catalog.load_table(other.name()))
