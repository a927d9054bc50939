"""A receipt and a plan say where every bucket was, or they are refused where that matters."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, FlussTable
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.errors import PositionUnknownError
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.lake.state import read_table
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.receipts import Receipt
from tests.orchestrate.incremental.events import EventTables, rows

MakeScan = Callable[..., IncrementalScan]


def ids(table: pa.Table) -> list[int]:
    found: list[int] = sorted(table["id"].to_pylist())
    return found


@pytest.fixture(params=["log", "key", "partitioned"])
def table(request: pytest.FixtureRequest, tables: EventTables) -> FlussTable:
    if request.param == "log":
        made = tables.events()
    elif request.param == "key":
        made = tables.keyed()
    else:
        made = tables.days("d1", "d2")
    return made


def test_a_receipt_of_a_small_increment_stands_for_the_whole_table(
    connection: FlussConnection,
    tables: EventTables,
    make_scan: MakeScan,
    store: CheckpointStore,
    table: FlussTable,
) -> None:
    has_key = table.get_table_info().has_primary_key()
    write = tables.upsert if has_key else tables.append
    options = {"metadata_columns": ["_change_type"]} if has_key else {}
    write(table, rows(range(100)))
    scan = make_scan(table, **options)
    with scan.run("one") as run:
        run.to_arrow()
    write(table, rows(range(100, 101)))
    with scan.run("two") as run:
        run.to_arrow()
    receipt, plan = run.receipt, run.plan
    assert receipt is not None
    assert len(receipt.ranges) == 1
    write(table, rows(range(101, 120)))
    path = table.get_table_path()
    stored = next(iter(store.history(scan.name))).receipt
    copied = Receipt.from_json(json.loads(json.dumps(receipt.to_json())))
    for target in (receipt, copied, stored, plan):
        assert ids(read_table(connection, path, as_of=target).read_all()) == list(range(101))
    other = make_scan(table, name=f"{scan.name}-other", **options)
    with other.run("until", until=copied) as run:
        assert ids(run.to_arrow()) == list(range(101))

    bare_plan = ScanPlan.from_json(plan.to_json())
    for unknown in (replace(receipt, position=None), bare_plan, {receipt.ranges[0].bucket: 3}):
        if isinstance(unknown, dict) and receipt.ranges[0].partition_id is not None:
            continue
        with pytest.raises(PositionUnknownError) as caught:
            read_table(connection, path, as_of=unknown)
        assert receipt.ranges[0].place not in caught.value.places
    with pytest.raises(PositionUnknownError):
        other.plan("again", until=replace(receipt, position=None))
