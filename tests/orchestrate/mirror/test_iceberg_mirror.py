"""Mirrors in Iceberg: after every plan the table equals a model, read by DuckDB and pyiceberg."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import Config, FlussConnection
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import JobResult
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.lake.errors import CommitConflictError, RowDeltaError
from fluss_orchestrate.core.mirror.table import mirror_scan, mirror_table
from fluss_orchestrate.core.plan import Generation, ScanPlan
from fluss_orchestrate.core.row_schema import with_keys
from fluss_orchestrate.core.sinks import (
    IcebergSink,
    SinkFormError,
    SinkPositionError,
    SinkSchemaError,
    copy_on_write,
    iceberg_mirror,
)
from tests.faults.recording import KILLS_PER_PART, parts_of
from tests.fix_either import own_database
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.mirror.iceberg_source import (
    COLUMNS,
    REGIONS,
    TABLE,
    Duck,
    Model,
    Source,
    as_model,
    catalog_properties,
    mirror_sink,
    pyiceberg_rows,
    without_nulls,
)
from tests.orchestrate.sinks.plans import make_plan

MODES = ("equality", "copy_on_write")
PROGRAMS_LONG = 75
"""Per form and kind of source: 300 in all."""
LAYOUTS = ([], ["bucket(3, id)"], ["region"], ["region", "bucket(2, id)"])
CHECKPOINT = "copy"


@pytest.fixture(scope="module")
def duck() -> Iterator[Duck]:
    made = Duck()
    yield made
    made.close()


@pytest.fixture(scope="session")
def source_connection(fluss_address: str) -> Iterator[FlussConnection]:
    with FlussConnection.create(Config({"bootstrap.servers": fluss_address})).result() as made:
        yield made


@pytest.fixture
def source_database(source_connection: FlussConnection) -> Iterator[str]:
    with own_database(source_connection, "mirrors") as name:
        yield name


class Mirror:
    """A source, its mirror, and the checks after each run."""

    def __init__(self, source: Source, folder: Path, duck: Duck, **options: Any) -> None:
        self.source = source
        self.folder = folder
        self.duck = duck
        self.store = CheckpointStore(MemoryEventLog())
        self.sink = mirror_sink(folder, **options)
        self.is_copied = options.get("write_mode") == "copy_on_write"
        self.runs = 0
        self.scan_options = {"settle_ms": 0}

    def scan(self) -> IncrementalScan:
        return mirror_scan(
            self.source.connection,
            self.source.path,
            CHECKPOINT,
            store=self.store,
            scan_options=self.scan_options,
        )

    def run(self, run_key: str = "", **options: Any) -> JobResult:
        self.runs += 1
        return mirror_table(
            self.source.connection,
            self.source.path,
            self.sink,
            run_key or f"run-{self.runs}",
            checkpoint=CHECKPOINT,
            store=self.store,
            scan_options=self.scan_options,
            **options,
        )

    def check(self, expected: Model | None = None) -> None:
        """The rows by DuckDB, by our reader and, if it can, by pyiceberg."""
        wanted = without_nulls(self.source.model if expected is None else expected)
        assert self.duck.rows(self.folder) == wanted
        if self.sink.position(CHECKPOINT) is None:
            return
        if self.is_copied:
            assert pyiceberg_rows(self.folder) == wanted
        with self.sink.read_mirror(CHECKPOINT, COLUMNS) as found:
            assert found is not None
            rows = found.rows.read_all()
        assert rows.schema.types == COLUMNS.types
        assert as_model(rows) == {
            key: {name: value for name, value in row.items() if name in COLUMNS.names}
            for key, row in wanted.items()
        }

    def offsets(self) -> dict[tuple[int | None, int], int]:
        position = self.sink.position(CHECKPOINT)
        assert position is not None
        return dict(position.offsets)

    def table(self) -> Any:
        return open_catalog(catalog_properties(self.folder)).load_table(TABLE)


def step(mirror: Mirror, chance: random.Random, seen: list[ScanPlan]) -> None:
    """One random step of a program, then a run, then the checks."""
    source = mirror.source
    kind = chance.random()
    if kind < 0.15:
        source.add_column(f"extra{mirror.runs}")
    elif kind < 0.4 and source.partitioned:
        region = chance.choice(REGIONS)
        if region in source.there and len(source.there) > 1:
            source.drop(region)
        if region not in source.there and chance.random() < 0.6:
            source.create(region)
    elif kind < 0.5 and mirror.runs:
        mirror.scan().reset("start", "a rebuild")
    source.change(chance, chance.randrange(0, 25), keys=chance.choice([3, 12]))
    if chance.random() < 0.3 and not source.partitioned:
        mirror.run(max_offsets=chance.randrange(1, 20), planned=lambda run: seen.append(run.plan))
        mirror.check(source.at(mirror.offsets()))
    mirror.run(planned=lambda run: seen.append(run.plan))
    mirror.check()
    if seen[-1].generation == seen[0].generation and chance.random() < 0.5:
        mirror.sink.write(chance.choice(seen), mirror.scan().read)
        mirror.check()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", parts_of(PROGRAMS_LONG))
@pytest.mark.parametrize("mode", MODES)
def test_random_programs(
    source_connection: FlussConnection,
    source_database: str,
    tmp_path: Path,
    duck: Duck,
    long_form: bool,
    mode: str,
    part: int,
) -> None:
    begin = part * KILLS_PER_PART
    for seed in range(begin, begin + (KILLS_PER_PART if long_form else 3)):
        print("seed", seed, "mode", mode)
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        source = Source(source_connection, source_database, partitioned=seed % 3 == 1)
        layouts = [*LAYOUTS, *([["truncate(1, name)"]] if mode == "copy_on_write" else [])]
        mirror = Mirror(
            source,
            folder,
            duck,
            write_mode=mode,
            partition_by=chance.choice(layouts),
            schema_policy="add_columns",
        )
        seen: list[ScanPlan] = []
        for _ in range(chance.randrange(3, 8) if long_form else 3):
            step(mirror, chance, seen)


@pytest.fixture
def make_mirror(
    source_connection: FlussConnection, source_database: str, tmp_path: Path, duck: Duck
) -> Any:
    def make(partitioned: bool = False, **options: Any) -> Mirror:
        source = Source(source_connection, source_database, partitioned=partitioned)
        return Mirror(source, tmp_path, duck, **options)

    return make


embedded = pytest.mark.parametrize("fluss_kind", ["embedded"], indirect=True, scope="session")


def row(region: str, number: int, name: str = "x") -> dict[str, Any]:
    return {"region": region, "id": number, "name": name, "price": None, "seen": None}


def put(source: Source, *rows: dict[str, Any]) -> None:
    source.tables.upsert(source.table, list(rows))
    source.model |= {(r["region"], r["id"]): r for r in rows}


@embedded
def test_a_created_mirror_has_the_key_and_no_metadata(make_mirror: Any) -> None:
    mirror = make_mirror()
    put(mirror.source, row("north", 1))
    mirror.run()
    table = mirror.table()
    schema = table.schema()
    assert table.metadata.format_version == 2
    assert schema.identifier_field_names() == {"region", "id"}
    assert [f.name for f in schema.fields if f.required] == ["region", "id"]
    assert [f.name for f in schema.fields] == COLUMNS.names
    assert table.properties[f"fluss.sink.{CHECKPOINT}.form"] == "mirror"


@embedded
def test_keys_that_were_only_inserted_need_no_delete(make_mirror: Any) -> None:
    mirror = make_mirror()
    mirror.source.change(random.Random(1), 10)
    mirror.run()
    put(mirror.source, row("west", 100), row("west", 101))
    mirror.run()
    summary = mirror.table().current_snapshot().summary
    assert summary["added-equality-deletes"] is None
    assert summary["added-records"] == "2"
    for number in (100, 101):
        mirror.source.tables.delete(mirror.source.table, [{"region": "west", "id": number}])
        mirror.source.model.pop(("west", number))
    mirror.run()
    summary = mirror.table().current_snapshot().summary
    assert summary["added-equality-deletes"] == "2"
    assert summary["added-data-files"] is None
    mirror.check()


@embedded
@pytest.mark.parametrize("mode", MODES)
def test_changes_that_vanish_move_the_position(make_mirror: Any, mode: str) -> None:
    mirror = make_mirror(write_mode=mode)
    put(mirror.source, row("north", 1))
    mirror.run()
    before = mirror.offsets()
    put(mirror.source, row("west", 7))
    mirror.source.tables.delete(mirror.source.table, [{"region": "west", "id": 7}])
    del mirror.source.model["west", 7]
    snapshots = len(mirror.table().snapshots())
    assert mirror.run().rows == 2
    assert sum(mirror.offsets().values()) == sum(before.values()) + 2
    assert len(mirror.table().snapshots()) == snapshots + 1
    mirror.check()


@embedded
@pytest.mark.parametrize("mode", MODES)
def test_a_rebuild_is_one_snapshot(make_mirror: Any, mode: str, duck: Duck) -> None:
    mirror = make_mirror(write_mode=mode, partition_by=["bucket(2, id)"])
    for _ in range(3):
        mirror.source.change(random.Random(4), 20)
        mirror.run()
    before = len(mirror.table().snapshots())
    mirror.scan().reset("start", "again")
    mirror.run()
    table = mirror.table()
    assert len(table.snapshots()) == before + 1
    assert table.inspect.delete_files().num_rows == 0
    assert int(table.current_snapshot().summary["total-records"]) == len(mirror.source.model)
    assert int(table.current_snapshot().summary["total-delete-files"]) == 0
    mirror.check()


@embedded
def test_a_rebuild_of_an_empty_table_leaves_no_rows(make_mirror: Any) -> None:
    mirror = make_mirror()
    put(mirror.source, row("north", 1), row("south", 2))
    mirror.run()
    source = mirror.source
    source.table = source.tables.recreate(source.table)
    source.model = {}
    mirror.scan().reset("start", "the table was created again")
    mirror.run()
    mirror.check({})
    put(source, row("north", 3))
    mirror.run()
    mirror.check()


@embedded
@pytest.mark.parametrize("layout", [[], ["bucket(2, id)"], ["region"]])
@pytest.mark.parametrize("mode", MODES)
def test_dropped_partitions_leave_and_new_ones_of_their_name_stay(
    make_mirror: Any, mode: str, layout: list[str]
) -> None:
    mirror = make_mirror(partitioned=True, write_mode=mode, partition_by=layout)
    source = mirror.source
    put(source, *(row(region, number) for region in REGIONS for number in range(4)))
    mirror.run()
    source.drop("north")
    mirror.run()
    mirror.check()
    source.drop("south")
    source.create("south")
    put(source, row("south", 2, "new"), row("west", 0, "changed"))
    mirror.run()
    mirror.check()
    assert ("south", 1) not in source.model
    if layout == ["region"] and mode == "equality":
        assert int(mirror.table().current_snapshot().summary["deleted-data-files"]) == 1


def test_new_columns_come_with_the_rows_in_one_commit(make_mirror: Any) -> None:
    mirror = make_mirror(schema_policy="add_columns")
    put(mirror.source, row("north", 1))
    mirror.run()
    mirror.source.add_column("stock")
    put(mirror.source, {**row("south", 2), "stock": 5})
    versions = len(mirror.table().metadata.metadata_log)
    mirror.run()
    table = mirror.table()
    assert len(table.metadata.metadata_log) == versions + 1
    assert table.schema().find_field("stock").field_type.is_primitive
    mirror.check()


@embedded
def test_new_columns_are_refused_before_anything_is_written(
    make_mirror: Any, tmp_path: Path
) -> None:
    mirror = make_mirror()
    put(mirror.source, row("north", 1))
    mirror.run()
    files = sorted(tmp_path.rglob("*.parquet"))
    mirror.source.add_column("stock")
    put(mirror.source, {**row("south", 2), "stock": 5})
    with pytest.raises(SinkSchemaError, match="stock"):
        mirror.run("next")
    assert sorted(tmp_path.rglob("*.parquet")) == files
    mirror.sink = mirror_sink(tmp_path, schema_policy="add_columns")
    mirror.run("next")
    mirror.check()


WIDE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("share", pa.float64()),
        pa.field("price", pa.decimal128(12, 2)),
    ]
)
NARROW = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("share", pa.float32()),
        pa.field("price", pa.decimal128(10, 2)),
    ]
)


def keyed_rows(schema: pa.Schema, *changes: tuple[str, int, float]) -> Any:
    """A read that gives these changes."""
    columns = pa.schema([*schema, pa.field("_change_type", pa.string())])
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([key for _, key, _ in changes], schema.field("id").type),
            pa.array([share for _, _, share in changes], schema.field("share").type),
            pa.array([Decimal(key) for _, key, _ in changes], schema.field("price").type),
            pa.array([kind for kind, _, _ in changes]),
        ],
        schema=columns,
    )
    keyed = with_keys(columns, ["id"], [])
    return lambda plan: pa.RecordBatchReader.from_batches(keyed, [batch.cast(keyed)])


def key_plan(*ranges: tuple[int, int, int], **options: Any) -> ScanPlan:
    return replace(
        make_plan(*ranges),
        kind="changelog",
        metadata_columns=("_change_type",),
        columns=("id", "share", "price"),
        **options,
    )


def test_types_become_wider(tmp_path: Path) -> None:
    sink = mirror_sink(tmp_path)
    sink.write(key_plan((0, 0, 2)), keyed_rows(NARROW, ("+I", 1, 0.5), ("+I", 2, 0.25)))
    later = key_plan((0, 2, 4))
    wide = keyed_rows(WIDE, ("+U", 1, 0.125), ("-D", 2, 0.25))
    with pytest.raises(SinkSchemaError, match="widen it there"):
        sink.write(later, wide)
    mirror_sink(tmp_path, schema_policy="add_columns").write(later, wide)
    table = open_catalog(catalog_properties(tmp_path)).load_table(TABLE)
    kinds = [str(f.field_type) for f in table.schema().fields]
    assert kinds == ["long", "double", "decimal(12, 2)"]
    with sink.read_mirror("job", WIDE) as found:
        assert found is not None
        rows = found.rows.read_all().to_pylist()
    assert [(r["id"], r["share"]) for r in rows] == [(1, 0.125)]
    text = pa.schema([WIDE.field("id"), pa.field("share", pa.string()), WIDE.field("price")])
    with pytest.raises(SinkSchemaError, match="cannot hold string"):
        mirror_sink(tmp_path, schema_policy="add_columns").write(
            key_plan((0, 4, 5)),
            keyed_rows(text, ("+I", 9, None)),  # type: ignore[arg-type]
        )
    # Narrow rows of an earlier schema fit into the wider columns.
    sink.write(key_plan((0, 4, 5)), keyed_rows(NARROW, ("+I", 9, 0.5)))


def test_plans_of_other_forms_generations_and_tables_are_refused(tmp_path: Path) -> None:
    first = key_plan((0, 0, 2))
    rows = keyed_rows(NARROW, ("+I", 1, 0.5), ("+I", 2, 0.25))
    appended = mirror_sink(tmp_path, form="append")
    appended.write(first, rows)
    mirror = mirror_sink(tmp_path)
    with pytest.raises(SinkFormError, match="has written into it with form='append'"):
        mirror.write(key_plan((0, 2, 4)), rows)
    with pytest.raises(SinkFormError, match="not of this mirror"):
        mirror.write(replace(first, name="other"), rows)
    appended.reset_position("job")
    with pytest.raises(SinkFormError, match="not of this mirror"):
        mirror.write(first, rows)

    folder = tmp_path / "own"
    folder.mkdir()
    mirror = mirror_sink(folder)
    with pytest.raises(SinkPositionError, match="begins in the middle"):
        mirror.write(key_plan((0, 2, 4)), rows)
    mirror.write(first, rows)
    with pytest.raises(SinkFormError, match="form='mirror'"):
        mirror_sink(folder, form="append").write(key_plan((0, 2, 4)), rows)
    # A position that was set by hand knows no generation: nothing is overwritten by a part.
    later = replace(key_plan((0, 2, 4)), generation=Generation(3, "abc"))
    with pytest.raises(SinkPositionError, match="begins in the middle"):
        mirror.write(later, rows)
    with pytest.raises(SinkPositionError, match="does not go on where this sink is"):
        mirror.write(key_plan((0, 5, 7)), rows)
    no_key = pa.RecordBatchReader.from_batches(NARROW, [])
    with pytest.raises(SinkFormError, match="no primary key"):
        mirror.write(key_plan((0, 2, 4)), lambda _: no_key)


def test_settings_that_cannot_work(tmp_path: Path) -> None:
    rows = keyed_rows(NARROW, ("+I", 1, 0.5))
    plan = key_plan((0, 0, 1))
    with pytest.raises(SinkFormError, match="does not derive from the primary key"):
        mirror_sink(tmp_path, partition_by=["share"]).write(plan, rows)
    with pytest.raises(SinkFormError, match="keep the history in SQL"):
        mirror_sink(tmp_path, form="history")
    with pytest.raises(ConfigError, match="write_mode"):
        mirror_sink(tmp_path, write_mode="merge")
    with pytest.raises(ConfigError, match="form is"):
        mirror_sink(tmp_path, form="upsert")
    with pytest.raises(SinkFormError, match="keeps no mirror"):
        mirror_sink(tmp_path, form="append").read_mirror("job", NARROW)
    fine = pa.schema([pa.field("id", pa.timestamp("ns")), *list(NARROW)[1:]])
    with pytest.raises(SinkSchemaError, match="two keys could become one"):
        mirror_sink(tmp_path).write(plan, keyed_rows(fine, ("+I", 1, 0.5)))
    mirror_sink(tmp_path).write(plan, rows)
    mirror_sink(tmp_path).write(key_plan((0, 1, 2)), keyed_rows(NARROW, ("-D", 1, 0.5)))
    with pytest.raises(RowDeltaError, match="delete files"):
        mirror_sink(tmp_path, write_mode="copy_on_write").write(
            key_plan((0, 2, 3)), keyed_rows(NARROW, ("+I", 1, 0.5))
        )


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_race_is_rebuilt_on_what_the_winner_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    sink = mirror_sink(tmp_path, write_mode=mode)
    sink.write(key_plan((0, 0, 2)), keyed_rows(NARROW, ("+I", 1, 0.5), ("+I", 2, 0.25)))
    commit = iceberg_mirror.commit_change
    calls = []

    def late(table: Any, change: Any) -> int:
        """Between load and commit, others add a property with a snapshot of their own."""
        calls.append(change)
        if len(calls) == 1:
            other = open_catalog(catalog_properties(tmp_path)).load_table(TABLE)
            other.append(pa.table({"id": [50], "share": [0.5]}, schema=NARROW.remove(2)))
        return commit(table, change)

    monkeypatch.setattr(iceberg_mirror, "commit_change", late)
    plan = key_plan((0, 2, 4))
    done = sink.write(plan, keyed_rows(NARROW, ("+U", 1, 0.75), ("-D", 50, 0.5)))
    assert len(calls) == 2
    assert (done.rows, done.moved) == (2, None)
    with sink.read_mirror("job", NARROW) as found:
        assert found is not None
        assert {r["id"]: r["share"] for r in found.rows.read_all().to_pylist()} == {
            1: 0.75,
            2: 0.25,
        }
    assert sink.write(plan, keyed_rows(NARROW)).moved == 0


def test_the_loser_of_a_race_takes_its_files_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, rival = mirror_sink(tmp_path), mirror_sink(tmp_path)
    sink.write(key_plan((0, 0, 1)), keyed_rows(NARROW, ("+I", 1, 0.5)))
    plan, rows = key_plan((0, 1, 2)), keyed_rows(NARROW, ("+U", 1, 0.75))
    commit = iceberg_mirror.commit_change

    def beaten(table: Any, change: Any) -> int:
        monkeypatch.setattr(iceberg_mirror, "commit_change", commit)
        rival.write(plan, rows)
        return commit(table, change)

    monkeypatch.setattr(iceberg_mirror, "commit_change", beaten)
    assert sink.write(plan, rows).moved == 0
    assert len(list(tmp_path.rglob("*.parquet"))) == 3


def test_many_keys_are_compared_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_on_write.TouchedKeys.__init__, "__defaults__", (3,))
    sink = mirror_sink(tmp_path, write_mode="copy_on_write")
    begin = [("+I", number, 0.5) for number in range(20)]
    sink.write(key_plan((0, 0, 20)), keyed_rows(NARROW, *begin))
    gone = [("-D", number, 0.5) for number in range(0, 20, 2)]
    sink.write(key_plan((0, 20, 30)), keyed_rows(NARROW, *gone))
    found = open_catalog(catalog_properties(tmp_path)).load_table(TABLE).scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(1, 20, 2))


def test_commits_without_a_race_are_not_repeated(tmp_path: Path) -> None:
    """A commit on an old base fails, and nothing of it is in the table."""
    sink = mirror_sink(tmp_path)
    sink.write(key_plan((0, 0, 1)), keyed_rows(NARROW, ("+I", 1, 0.5)))
    old = open_catalog(catalog_properties(tmp_path)).load_table(TABLE)
    sink.write(key_plan((0, 1, 2)), keyed_rows(NARROW, ("+U", 1, 0.75)))
    with pytest.raises(CommitConflictError):
        iceberg_mirror.commit_change(old, iceberg_mirror.TableChange(properties={"a": "b"}))


def test_changes_are_appended(tmp_path: Path) -> None:
    sink = IcebergSink(catalog_properties(tmp_path), TABLE, form="changes")
    sink.write(key_plan((0, 0, 2)), keyed_rows(NARROW, ("+I", 1, 0.5), ("-D", 1, 0.5)))
    found = open_catalog(catalog_properties(tmp_path)).load_table(TABLE).scan().to_arrow()
    assert found["_change_type"].to_pylist() == ["+I", "-D"]
