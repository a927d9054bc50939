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
from fluss_orchestrate.core.sinks import IcebergSink, SinkSchemaError
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
