"""A mirror in a Fluss table equals its source when a plan is finished."""

from __future__ import annotations

import random

import pytest

from fluss_client import FlussConnection
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.loading import units
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.sinks import FlussTableSink, SinkFormError, SinkSchemaError
from tests.contract.tables import Tables
from tests.faults.recording import KILLS_PER_PART, parts_of
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.mirror_sql.keyed_model import COLUMNS, KeyedModel
from tests.orchestrate.mirror_sql.mirrors import Mirror, fluss_mirror, run_program

SEED = 20261118
PROGRAMS, PROGRAMS_LONG = 2, 150
STEPS = 14


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", parts_of(PROGRAMS_LONG))
def test_random_programs(
    tables: Tables,
    source: FlussConnection,
    long_form: bool,
    part: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(units, "BATCH_ROWS_MAX", 7)
    begin = part * KILLS_PER_PART
    for number in range(begin, begin + (KILLS_PER_PART if long_form else PROGRAMS)):
        rng = random.Random(SEED + number)
        print("seed", SEED + number)
        model = KeyedModel(tables, rng, partitioned=rng.random() < 0.5, buckets=rng.randrange(1, 4))
        sink = fluss_mirror(tables, model, rng.randrange(1, 4))
        run_program(rng, model, Mirror(model, sink, source), STEPS)


def test_a_rebuild_deletes_the_keys_that_the_state_lacks(
    tables: Tables, source: FlussConnection
) -> None:
    rng = random.Random(SEED)
    model = KeyedModel(tables, rng, partitioned=True)
    mirror = Mirror(model, fluss_mirror(tables, model, 3), source)
    model.upsert(30)
    mirror.run()
    model.delete(12)
    model.change_days()
    model.upsert(5)
    mirror.reset()
    done = mirror.run()
    assert done.receipt.details["sink"]["deleted_of_target"] > 0
    # The same plan again finds itself done.
    assert mirror.run(run_key="run-2").receipt.rows == done.receipt.rows


def test_tables_that_are_no_mirror_are_refused(tables: Tables, source: FlussConnection) -> None:
    model = KeyedModel(tables, random.Random(SEED))
    model.upsert(3)
    other = tables.create(COLUMNS, ["id", "day"], buckets=1)
    first_row = tables.create(
        COLUMNS, ["id"], buckets=1, properties={"table.merge-engine": "first_row"}
    )
    for wrong in (other, first_row):
        sink = FlussTableSink(source, wrong.get_table_path(), ledger_replicas=1, form="mirror")
        with pytest.raises(SinkSchemaError):
            Mirror(model, sink, source).run()
    taken = tables.create(COLUMNS, ["id"], buckets=1)
    tables.upsert(taken, [dict.fromkeys(COLUMNS) | {"id": 1}])
    sink = FlussTableSink(source, taken.get_table_path(), ledger_replicas=1, form="mirror")
    with pytest.raises(SinkFormError, match="empty table"):
        Mirror(model, sink, source).run()
    sink = fluss_mirror(tables, model, 1)
    Mirror(model, sink, source).run()
    with pytest.raises(SinkFormError, match="one mirror"):
        mirror_table(
            source,
            model.path,
            sink,
            "run",
            checkpoint="second",
            store=CheckpointStore(MemoryEventLog()),
        )
