"""One whole value of everything that is written down and read again, and who reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fluss_client.model.table import TablePath
from fluss_orchestrate.core.checkpoints.events import (
    Binding,
    CheckpointState,
    Event,
    EventKind,
    event_from_json,
)
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.checkpoints.records import rebuilt
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.lake.covers import LakeTarget
from fluss_orchestrate.core.plan import BucketRange, Generation, ScanPlan
from fluss_orchestrate.core.provisioning.spec import TableSpec, load_table_specs
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource

TABLE = TableIdentity("prod", TablePath("sales", "orders"), 7, 1_700_000_000_000)
RANGES = (BucketRange(None, None, 0, 0, 120), BucketRange(3, "eu", 1, 40, 95))
PLAN = ScanPlan(
    name="orders-to-lake",
    run_key="dag/task/2026-11-16",
    table=TABLE,
    schema_id=2,
    columns=("id", "amount"),
    metadata_columns=("_offset",),
    ranges=RANGES,
    sequence=4,
    created_ms=1_700_000_000_001,
)
RECEIPT = Receipt(
    kind="increment",
    table=TABLE,
    run_key="dag/task/2026-11-16",
    ranges=RANGES,
    rows=175,
    bytes=9_000,
    plan_id=PLAN.plan_id,
    snapshot_id=12,
    started_ms=1,
    finished_ms=2,
    details={"files": ["a", "b"]},
)
POSITION = TablePosition(
    TABLE, {(None, 0): 120, (3, 1): 95}, {(3, 1): 1_700_000_000_000}, {3: "eu"}
)
EVENT = Event(
    name="orders-to-lake",
    sequence=5,
    kind=EventKind.COMMIT,
    state=CheckpointState(POSITION, PLAN, "another", False),
    run_key="dag/task/2026-11-16",
    plan_id=PLAN.plan_id,
    nonce="0" * 24,
    created_ms=1_700_000_000_002,
    receipt=replace(RECEIPT, position=POSITION.offsets),
    details={"reason": "done"},
)
GENERATION = Generation(3, "a" * 24)
LATER_PLAN = replace(PLAN, generation=GENERATION)
MIRROR_PLAN = replace(LATER_PLAN, dropped=((7, "2026-11-01"),))
LATER_RECEIPT = replace(RECEIPT, rows_moved=25, position=POSITION.offsets)
LATER_EVENT = replace(
    EVENT,
    state=CheckpointState(
        POSITION,
        LATER_PLAN,
        "another",
        False,
        GENERATION,
        Binding("parquet:local:/data", ("id", "amount"), ("_offset",), 4),
        3,
    ),
    receipt=LATER_RECEIPT,
)
SPEC: dict[str, Any] = {
    "table": "sales.orders",
    "columns": {"id": "bigint not null", "region": "string", "amount": {"type": "decimal(12,2)"}},
    "primary_key": ["id", "region"],
    "partition_keys": ["region"],
    "bucket_keys": ["id"],
    "buckets": 4,
    "lake": True,
    "properties": {"table.log.ttl": "7d"},
    "partitions": [{"region": "eu"}],
    "comment": "one row per order",
}
LOAD = BulkLoadSpec(LoadSource("parquet", ("/data/a",)), "sales.orders", "load-1")

Reader = Callable[[Any], Any]

READERS: dict[str, tuple[Any, Reader]] = {
    "plan": (PLAN.to_json(), ScanPlan.from_json),
    "later plan": (LATER_PLAN.to_json(), ScanPlan.from_json),
    "plan of a mirror": (MIRROR_PLAN.to_json(), ScanPlan.from_json),
    "receipt": (RECEIPT.to_json(), Receipt.from_json),
    "later receipt": (LATER_RECEIPT.to_json(), Receipt.from_json),
    "position": (POSITION.to_json(), TablePosition.from_json),
    "event": (EVENT.to_json(), event_from_json),
    "later event": (LATER_EVENT.to_json(), event_from_json),
    "cluster": (ClusterRef("prod", {"writer.acks": "all"}).to_json(), ClusterRef.from_json),
    "lake target": (
        LakeTarget(TABLE, {(None, 0): 120}).to_json(),
        LakeTarget.from_json,
    ),
    "table spec": (SPEC, TableSpec.from_mapping),
    "load spec": (
        json.loads(LOAD.to_json()),
        lambda value: BulkLoadSpec.from_json(json.dumps(value)),
    ),
    "spec file": ({"tables": [SPEC]}, lambda value: load_table_specs("# \n" + json.dumps(value))),
}
"""Name → a whole value as JSON has it, and what reads it."""


def event_in(columns: Mapping[str, Any], body: bytes) -> Event:
    """The event of a record that has the whole position."""
    (event,) = rebuilt([{**columns, "body": body}], lambda _: [], {}, at_once=True)
    return event
