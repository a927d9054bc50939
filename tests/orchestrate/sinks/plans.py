"""Plans without a cluster: rows that follow from their offsets alone."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from fluss_client.model.table import TablePath
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import BucketRange, ScanPlan

IDENTITY = TableIdentity("default", TablePath("shop", "orders"), 17, 1_700_000_000_000)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("region", pa.string()),
        pa.field("at", pa.timestamp("ns", tz="UTC")),
        pa.field("small", pa.int16()),
        pa.field("_offset", pa.int64()),
        pa.field("_bucket", pa.int32()),
    ]
)
BATCH_ROWS = 100
DAY_NS = 86_400 * 10**9


def make_plan(*ranges: tuple[int, int, int], name: str = "job", sequence: int = 0) -> ScanPlan:
    """A plan of (bucket, start, stop) ranges."""
    parts = tuple(BucketRange(None, None, b, start, stop) for b, start, stop in ranges)
    return ScanPlan(
        name=name,
        run_key=f"run-{sequence}",
        table=IDENTITY,
        schema_id=1,
        columns=("id", "region", "at", "small"),
        metadata_columns=("_offset", "_bucket"),
        ranges=parts,
        sequence=sequence,
    )


def rows(bucket: int, start: int, stop: int, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """The rows [start, stop) of a bucket."""
    offsets = range(start, stop)
    columns = {
        "id": [bucket * 1_000_000 + o for o in offsets],
        "region": [f"r{o % 3}" for o in offsets],
        "at": [(o % 5) * DAY_NS + o for o in offsets],
        "small": [o % 100 for o in offsets],
        "_offset": list(offsets),
        "_bucket": [bucket] * len(offsets),
        "extra": [o * 2 for o in offsets],
    }
    return pa.record_batch([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


def read(plan: ScanPlan, schema: pa.Schema = SCHEMA) -> pa.RecordBatchReader:
    """Stands for `IncrementalScan.read`."""

    def batches() -> Iterator[pa.RecordBatch]:
        for r in plan.ranges:
            for start in range(r.start, r.stop, BATCH_ROWS):
                yield rows(r.bucket, start, min(r.stop, start + BATCH_ROWS), schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def ids(table: pa.Table) -> list[int]:
    """The ids of some rows, sorted."""
    return sorted(table.column("id").to_pylist())


def expected_ids(*plans: ScanPlan) -> list[int]:
    """The ids that these plans hold."""
    return sorted(
        r.bucket * 1_000_000 + o for p in plans for r in p.ranges for o in range(r.start, r.stop)
    )
