"""The Fluss sink: appends and upserts that may be sent by anybody, any number of times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.loading import ledger, sending, units
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.mirror.verification import verify_mirror
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import FlussTableSink, PinExpiredError, SinkSchemaError
from fluss_orchestrate.core.sinks.errors import SinkFormError
from tests import forked
from tests.orchestrate.sinks.plans import SCHEMA, expected_ids, ids, make_plan, read
from tests.orchestrate.sinks.targets import KEYED, LAYOUTS, log_rows, make_target, values


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a plan of a few hundred rows has many units."""
    monkeypatch.setattr(units, "BATCH_ROWS_MAX", 20)
    monkeypatch.setattr(sending, "BLOCK_UNITS", 2)


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_appends_each_row_once(
    sink_connection: FlussConnection, sink_database: str, layout: str
) -> None:
    path = make_target(sink_connection, sink_database, layout)
    sink = FlussTableSink(sink_connection, path)
    plan = make_plan((0, 0, 370), (1, 5, 30))
    assert sink.already_done(plan) is None
    result = sink.write(plan, read)
    assert result.rows == 395
    assert sink.already_done(plan) == replace(result, moved=0)
    assert sink.write(plan, read) == replace(result, moved=0)
    found = log_rows(sink_connection, path)
    assert ids(found) == expected_ids(plan)
    if layout == "turns":
        zero = [i for i in found.column("id").to_pylist() if i < 1_000_000]
        assert zero == list(range(370))


def test_rows_are_not_added_to_a_mirror(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    """It would no longer equal its table, whichever checkpoint adds them."""
    source = make_target(sink_connection, sink_database, "keyed", KEYED, ["id"])

    other = TablePath(sink_database, "other")
    made = TableDescriptor(Schema(KEYED, primary_keys=["id"]), bucket_count=1)
    sink_connection.get_admin().result().create_table(other, made).result()

    def upsert(path: TablePath, first: int, stop: int) -> None:
        with sink_connection.get_table(path).result().new_upsert().create_writer() as writer:
            for number in range(first, stop):
                writer.upsert({"id": number, "value": "x"})

    upsert(source, 0, 5)
    target = TablePath(sink_database, "copy")
    mirror = FlussTableSink(sink_connection, target, form="mirror", create_from=sink_connection)
    name = f"{sink_database} mirror"
    assert mirror_table(sink_connection, source, mirror, "one", checkpoint=name).rows == 5
    upsert(source, 5, 8)
    upsert(other, 90, 95)
    adding = FlussTableSink(sink_connection, target)
    for checkpoint, path in ((name, source), (f"{name} 2", other)):
        changes = ["_change_type"]
        scan = IncrementalScan(sink_connection, path, checkpoint, metadata_columns=changes)
        with pytest.raises(SinkFormError, match=f"mirror of checkpoint '{name}'"):
            run_increment(scan, adding, "two")
    itself = IncrementalScan(sink_connection, other, f"{name} 3", metadata_columns=["_change_type"])
    with pytest.raises(SinkFormError, match="the table that is read"):
        run_increment(itself, FlussTableSink(sink_connection, other), "two")
    scan.store.abandon(name)
    assert mirror_table(sink_connection, source, mirror, "two", checkpoint=name).rows == 3
    assert verify_mirror(sink_connection, source, mirror, name).equal


def test_a_plan_that_was_left_half_written(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = make_target(sink_connection, sink_database, "keyed")
    plan = make_plan((0, 0, 350))

    def dies(part: ScanPlan) -> pa.RecordBatchReader:
        reader = read(part)

        def some() -> Iterator[pa.RecordBatch]:
            yield reader.read_next_batch()
            yield reader.read_next_batch()
            raise OSError("the line broke")

        return pa.RecordBatchReader.from_batches(reader.schema, some())

    with pytest.raises(OSError, match="the line broke"):
        FlussTableSink(sink_connection, path).write(plan, dies)
    assert 0 < log_rows(sink_connection, path).num_rows < 350
    # Other batches of the same rows: only row counts decide where units end.
    whole = read(plan).read_all().combine_chunks().to_reader()
    FlussTableSink(sink_connection, path).write(plan, lambda _: whole)
    assert ids(log_rows(sink_connection, path)) == expected_ids(plan)


KILLED = """
import os, signal, sys
from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.loading import ledger, sending, units
from fluss_orchestrate.core.loading.ledger import Pins
from fluss_orchestrate.core.sinks import FlussTableSink
from tests.orchestrate.sinks.plans import make_plan, read
stage, address, table = sys.argv[1:]
units.BATCH_ROWS_MAX = 20
sending.BLOCK_UNITS = 2
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
real = sending.PinnedLoad._send_block
async def send_block(self, number, units):
    await real(self, number, units)
    if stage == "within": die()
sending.PinnedLoad._send_block = send_block
async def finish(self, *_): die()
if stage == "before-done": Pins.finish = finish
with FlussConnection.create(Config({"bootstrap.servers": address})).result() as connection:
    FlussTableSink(connection, table).write(make_plan((0, 0, 350)), read)
    die()
"""


@pytest.mark.parametrize("stage", ["within", "before-done", "after"])
def test_killed(
    sink_connection: FlussConnection, sink_database: str, fluss_address: str, stage: str
) -> None:
    path = make_target(sink_connection, sink_database)
    assert forked.run_program(KILLED, stage, fluss_address, str(path)) == -9
    plan = make_plan((0, 0, 350))
    sink = FlussTableSink(sink_connection, path)
    assert (sink.already_done(plan) is None) == (stage != "after")
    assert sink.write(plan, read).rows == 350
    assert ids(log_rows(sink_connection, path)) == expected_ids(plan)


def changes(*rows: tuple[str, int, str]) -> Any:
    """A read that gives these changes: (change type, id, value)."""
    batch = pa.record_batch(
        {
            "id": pa.array([r[1] for r in rows], pa.int64()),
            "value": [r[2] for r in rows],
            "_change_type": [r[0] for r in rows],
        }
    )
    return lambda _: pa.RecordBatchReader.from_batches(batch.schema, [batch])


def test_upserts_and_deletes(sink_connection: FlussConnection, sink_database: str) -> None:
    path = make_target(sink_connection, sink_database, schema=KEYED, primary_keys=["id"])
    sink = FlussTableSink(sink_connection, path)
    sink.write(make_plan((0, 0, 3)), changes(("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c")))
    later = changes(("-U", 1, "a"), ("+U", 1, "x"), ("-D", 2, "b"))
    sink.write(make_plan((0, 3, 6), sequence=2), later)
    assert values(sink_connection, path, [1, 2, 3]) == ["x", None, "c"]


def test_clearing_an_old_run_after_newer_ones_puts_no_value_back(
    sink_connection: FlussConnection, sink_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_target(sink_connection, sink_database, schema=KEYED, primary_keys=["id"])
    sink = FlussTableSink(sink_connection, path)
    old, new = make_plan((0, 0, 2)), make_plan((0, 2, 4), sequence=2)
    old_rows = changes(("+I", 1, "old"), ("+I", 2, "old"))
    sink.write(old, old_rows)
    sink.write(new, changes(("+U", 1, "new"), ("-D", 2, "old")))

    sink.write(old, old_rows)
    assert values(sink_connection, path, [1, 2]) == ["new", None]
    # A run that was slow, and does not know that others finished its plan, sends it again.
    monkeypatch.setattr(sending.PinnedLoad, "done", lambda _: None)
    sink.write(old, old_rows)
    assert values(sink_connection, path, [1, 2]) == ["new", None]


def test_schema_policy(sink_connection: FlussConnection, sink_database: str) -> None:
    path = make_target(sink_connection, sink_database)
    wider = SCHEMA.append(pa.field("extra", pa.int64()))
    plan = make_plan((0, 0, 5))
    with pytest.raises(SinkSchemaError, match="extra"):
        FlussTableSink(sink_connection, path).write(plan, lambda p: read(p, wider))
    adding = FlussTableSink(sink_connection, path, schema_policy="add_columns")
    adding.write(plan, lambda p: read(p, wider))
    assert log_rows(sink_connection, path).column("extra").to_pylist() == [0, 2, 4, 6, 8]


def test_a_plan_that_was_begun_too_long_ago(
    sink_connection: FlussConnection, sink_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_target(sink_connection, sink_database)
    monkeypatch.setattr(ledger, "PIN_AGE_MAX_MS", -1)
    with pytest.raises(PinExpiredError, match="six days"):
        FlussTableSink(sink_connection, path).write(make_plan((0, 0, 5)), read)
