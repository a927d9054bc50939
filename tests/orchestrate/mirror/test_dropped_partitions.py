"""Partitions that are dropped between a plan and its reading: the mirror goes on, and is equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.incremental.run import ScanRun
from fluss_orchestrate.core.mirror.table import mirror_scan, mirror_table
from fluss_orchestrate.core.mirror.verification import verify_mirror
from fluss_orchestrate.core.sinks import FlussTableSink, SqlSink
from tests.contract.tables import Tables, done
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.mirror.iceberg_source import mirror_sink

COLUMNS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
    ]
)
SINKS = ("sql", "history", "equality", "copy_on_write", "fluss")


class Days:
    """A table with a partition per day, and its mirror."""

    def __init__(self, connection: FlussConnection, database: str, folder: Path, sink: str) -> None:
        self.connection = connection
        self.tables = Tables(connection, done(connection.get_admin()), database)
        self.source = self._table(database, "source")
        self.path = self.source.get_table_path()
        self.store = CheckpointStore(MemoryEventLog())
        self.sink: Any
        if sink == "fluss":
            target = self._table(database, "target").get_table_path()
            self.sink = FlussTableSink(
                connection, target, create_partitions=True, ledger_replicas=1, form="mirror"
            )
        elif sink in ("sql", "history"):
            form = "mirror" if sink == "sql" else "history"
            self.sink = SqlSink(f"sqlite:///{folder}/mirror.db", "t", form=form)
        else:
            self.sink = mirror_sink(folder, write_mode=sink)

    def _table(self, database: str, name: str) -> Any:
        return self.tables.create(
            COLUMNS, ["day", "id"], buckets=1, partition_keys=["day"], bucket_keys=["id"]
        )

    def create(self, day: str) -> None:
        done(self.tables.admin.create_partition(self.path, {"day": day}))

    def drop(self, day: str) -> None:
        done(self.tables.admin.drop_partition(self.path, {"day": day}))

    def put(self, day: str, *ids: int, text: str = "x") -> None:
        self.tables.upsert(self.source, [{"day": day, "id": i, "text": text} for i in ids])

    def run(self, run_key: str, **more: Any) -> Any:
        return mirror_table(
            self.connection,
            self.path,
            self.sink,
            run_key,
            checkpoint="days",
            store=self.store,
            scan_options={"settle_ms": 0},
            **more,
        )

    def rows(self) -> list[tuple[Any, ...]]:
        with self.sink.read_mirror("days", COLUMNS) as found:
            assert found is not None
            return sorted(tuple(row.values()) for row in found.rows.read_all().to_pylist())

    def check(self) -> None:
        found = verify_mirror(self.connection, self.path, self.sink, "days", store=self.store)
        assert found.equal, str(found)


def stop(_: ScanRun) -> None:
    """End a run when its plan is recorded."""
    raise KeyboardInterrupt


@pytest.fixture
def make_days(mirror_connection: FlussConnection, mirror_database: str, tmp_path: Path) -> Any:
    return lambda sink: Days(mirror_connection, mirror_database, tmp_path, sink)


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("run_key", ["killed", "another"])
def test_a_pending_plan_of_a_dropped_partition_is_made_anew(
    make_days: Any, sink: str, run_key: str
) -> None:
    days: Days = make_days(sink)
    for day in "abc":
        days.create(day)
        days.put(day, 1, 2)
    with pytest.raises(KeyboardInterrupt):
        days.run("first", planned=stop)
    days.drop("c")
    days.run("first")  # the state, without the dropped partition
    days.put("a", 2, 3, text="y")
    days.put("b", 7)
    with pytest.raises(KeyboardInterrupt):
        days.run("killed", planned=stop)
    days.drop("b")
    days.run(run_key)
    if sink == "history":
        return
    assert days.rows() == [("a", 1, "x"), ("a", 2, "y"), ("a", 3, "y")]
    days.check()
    days.create("b")
    days.put("b", 5)
    days.run("later")
    assert ("b", 5, "x") in days.rows()
    days.check()


def test_rows_that_an_abandoned_plan_left_in_a_fluss_table_go(
    make_days: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Fluss table has no transaction: a plan that is killed has written a part."""
    days: Days = make_days("fluss")
    days.create("a")
    days.put("a", 1)
    days.run("first")
    days.create("new")
    days.put("new", 1, 2)
    from fluss_orchestrate.core.sinks import fluss_mirror

    with monkeypatch.context() as patched:

        def die(*_: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr(fluss_mirror.MirrorLog, "record", die)
        with pytest.raises(KeyboardInterrupt):
            days.run("killed")
    days.drop("new")
    mirror_scan(days.connection, days.path, "days", store=days.store)
    head = days.store.require("days")
    assert head.state.pending is not None
    days.store.abandon("days", head.state.pending.plan_id, "a test")
    days.put("a", 2)
    days.run("second")
    assert days.rows() == [("a", 1, "x"), ("a", 2, "x")]
    days.check()


def test_the_table_is_known(make_days: Any) -> None:
    assert isinstance(make_days("sql").path, TablePath)
