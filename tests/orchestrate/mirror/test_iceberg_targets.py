"""Tables of Iceberg that a mirror must not write into as they are."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fluss_client import FlussConnection
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.mirror.table import mirror_scan, mirror_table
from fluss_orchestrate.core.mirror.verification import verify_mirror
from fluss_orchestrate.core.sinks import (
    IcebergSink,
    SinkFormError,
    SinkPositionError,
    SinkSchemaError,
)
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.mirror.iceberg_source import TABLE, Source, catalog_properties, mirror_sink

MODES = ("equality", "copy_on_write")


class Mirror:
    """A mirror of a source that a test runs."""

    def __init__(self, source: Source, sink: IcebergSink, checkpoint: str = "mirror") -> None:
        self.source = source
        self.sink = sink
        self.checkpoint = checkpoint
        self.store = CheckpointStore(MemoryEventLog())
        self.runs = 0

    def run(self) -> None:
        """Bring the mirror up to its source, and compare them."""
        self.runs += 1
        mirror_table(
            self.source.connection,
            self.source.path,
            self.sink,
            f"run-{self.runs}",
            checkpoint=self.checkpoint,
            store=self.store,
            scan_options={"settle_ms": 0},
        )
        connection = self.source.connection
        found = verify_mirror(
            connection, self.source.path, self.sink, self.checkpoint, store=self.store
        )
        assert found.equal, str(found)

    def reset(self) -> None:
        """Rebuild the mirror with the next run."""
        connection, path = self.source.connection, self.source.path
        scan = mirror_scan(connection, path, self.checkpoint, store=self.store)
        scan.reset("start", "a test", abandon_pending=True)


@pytest.fixture
def source(mirror_connection: FlussConnection, mirror_database: str) -> Source:
    made = Source(mirror_connection, mirror_database, partitioned=False)
    made.change(random.Random(20261119), 20)
    return made


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", ["error", "add_columns"])
def test_a_column_that_was_dropped_by_hand_is_not_added_with_nulls(
    source: Source, tmp_path: Path, mode: str, policy: str
) -> None:
    mirror = Mirror(source, mirror_sink(tmp_path, write_mode=mode, schema_policy=policy))
    mirror.run()
    table = open_catalog(catalog_properties(tmp_path)).load_table(TABLE)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("name")
    source.change(random.Random(1), 5)
    files, at = sorted(tmp_path.rglob("*.parquet")), mirror.sink.position("mirror")
    with pytest.raises(SinkSchemaError, match=r"name was dropped or renamed there.*reset"):
        mirror.run()
    assert sorted(tmp_path.rglob("*.parquet")) == files
    assert mirror.sink.position("mirror") == at
    assert "name" not in table.refresh().schema().column_names
    mirror.reset()
    if policy == "error":
        with pytest.raises(SinkSchemaError, match="add_columns"):
            mirror.run()
        mirror.sink = mirror_sink(tmp_path, write_mode=mode, schema_policy="add_columns")
    mirror.run()
    source.add_column("later")
    source.change(random.Random(2), 5)
    if policy == "add_columns":
        mirror.run()


@pytest.mark.parametrize("mode", MODES)
def test_a_table_is_one_mirror_in_every_catalog(source: Source, tmp_path: Path, mode: str) -> None:
    """What a mirror writes stands in the table, so that its name in a catalog does not matter."""
    mirror = Mirror(source, mirror_sink(tmp_path, write_mode=mode))
    mirror.run()
    table = open_catalog(catalog_properties(tmp_path)).load_table(TABLE)
    (tmp_path / "link.db").symlink_to(tmp_path / "catalog.db")
    linked = catalog_properties(tmp_path) | {"uri": f"sqlite:///{tmp_path}/link.db?timeout=60"}
    second = catalog_properties(tmp_path) | {"uri": f"sqlite:///{tmp_path}/second.db?timeout=60"}
    catalog = open_catalog(second)
    catalog.create_namespace("others")
    catalog.register_table("others.shop", table.metadata_location)
    for properties, name in ((linked, TABLE), (second, "others.shop")):
        sink = IcebergSink(properties, name, form="mirror", write_mode=mode)
        with pytest.raises(SinkFormError, match="of checkpoint mirror"):
            Mirror(source, sink, "second").run()
        # Nor under the same checkpoint of another store.
        other = Source(source.connection, source.path.database_name, partitioned=False)
        other.change(random.Random(3), 5)
        taken = Mirror(other, sink)
        with pytest.raises(SinkPositionError):
            taken.run()
        taken.reset()
        with pytest.raises(SinkPositionError, match="the plan is about"):
            taken.run()
    mirror.run()


@pytest.mark.parametrize("mode", MODES)
def test_catalogs_with_one_warehouse_have_one_mirror_of_a_name(
    source: Source, tmp_path: Path, mode: str
) -> None:
    """The folder of the table is the same, so that a removal of orphans would delete files."""
    mirror = Mirror(source, mirror_sink(tmp_path, write_mode=mode))
    mirror.run()
    second = catalog_properties(tmp_path) | {"uri": f"sqlite:///{tmp_path}/second.db?timeout=60"}
    sink = IcebergSink(second, TABLE, form="mirror", write_mode=mode)
    written = sorted(tmp_path.rglob("*.metadata.json"))[-1]
    for text in ("", written.read_text()[:100]):  # as they are while somebody writes them
        written.with_name(f"half-{len(text)}.metadata.json").write_text(text)
    for _ in range(2):
        with pytest.raises(SinkFormError, match=r"with rows of checkpoint mirror.*same warehouse"):
            Mirror(source, sink, "second").run()
    other = Source(source.connection, source.path.database_name, partitioned=False)
    other.change(random.Random(3), 5)
    with pytest.raises(SinkFormError, match="same warehouse"):
        Mirror(other, sink).run()
    mirror.run()
    # A table of the mirror itself that was dropped is no obstacle.
    open_catalog(catalog_properties(tmp_path)).drop_table(TABLE)
    mirror.reset()
    mirror.run()
    # Nor is another name.
    named = IcebergSink(second, "mirrors.others", form="mirror", write_mode=mode)
    Mirror(source, named, "second").run()
