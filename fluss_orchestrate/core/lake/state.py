"""The current state of a table in one call.

A log table: what is in the lake, then the tail that is only in the log. A key table: its rows as
the servers hold them, made exact by its changelog. Every bucket is exact at an offset of its own,
but **the buckets are not one snapshot**: while others write, one bucket may be a little newer than
another. `as_of` pins the offsets, so that two reads give the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.aio.lookup_keys import KeyMaker
from fluss_client.aio.ranges import read_ranges
from fluss_client.codec.partition_names import spec_to_name
from fluss_client.errors import PartitionNotExistError, SchemaError
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.cluster import ChangeType, OffsetSpec
from fluss_client.model.table import TableInfo, TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.errors import PositionUnknownError
from fluss_orchestrate.core.incremental.guards import check_identity
from fluss_orchestrate.core.incremental.observe import TableView, observe, offsets_of
from fluss_orchestrate.core.incremental.reading import PlanReading
from fluss_orchestrate.core.incremental.settings import Offsets
from fluss_orchestrate.core.incremental.state import ALL_ROWS, check_old_rows
from fluss_orchestrate.core.incremental.until import known_offsets
from fluss_orchestrate.core.lake.catalog import has_lake, load_lake_table
from fluss_orchestrate.core.lake.covers import LakeTarget, Target, resolve_target
from fluss_orchestrate.core.lake.reader import FROM_THE_FIRST, LakeRead, open_lake
from fluss_orchestrate.core.plan import BucketRange, Place, ScanPlan
from fluss_orchestrate.core.receipts import Receipt, whole_position

ROWS_PER_BATCH = 1 << 16
_STAYS = (ChangeType.Insert, ChangeType.UpdateAfter)


def read_table(
    connection: FlussConnection,
    table: TablePath | str,
    columns: Sequence[str] | None = None,
    partition: str | Mapping[str, str] | None = None,
    as_of: Target | LakeTarget | None = None,
    *,
    overrides: Mapping[str, str] | None = None,
) -> pa.RecordBatchReader:
    """Everything that a table holds, batch by batch.

    `partition` is a partition's name, or its values by column. `as_of` is a time, offsets, a
    receipt or a plan: exactly what had been written up to there, as long as the log (of a key
    table: its changelog, with old rows) is still there from that offset on. Each bucket by itself
    is exact; the buckets together are not one snapshot. A bucket of a key table is held in memory
    as a whole. Partitions that were dropped are not read, though the lake may still have them.

    Raises:
        ScanTooLargeError: A bucket of a key table holds more rows than a server is asked for at
            once; raised when that bucket is read.
        ScanLostError: The server was lost while it collected a bucket's rows.
        UnsupportedError: `as_of` for a key table whose changelog has no old rows
            (`table.changelog.image` is not FULL).
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    core = connection.core
    view = runtime().call(observe(core.backend, connection.config.resolved_alias(), path))
    info = view.info
    names = _names(info, columns)
    stops: Mapping[Place, int] = view.latest
    if isinstance(as_of, (ScanPlan, Receipt)):
        check_identity(as_of.table, view.identity)
        stops = whole_position(as_of, view.latest)
    elif isinstance(as_of, (Mapping, LakeTarget)):
        stops = _named(view, as_of if isinstance(as_of, Mapping) else as_of.offsets)
    elif as_of is not None:
        stops = runtime().call(resolve_target(core, path, as_of)).offsets
    chosen = _partition_id(view, partition)
    places = [
        p for p in view.latest if stops.get(p, 0) > 0 and (partition is None or p[0] == chosen)
    ]
    ends = [view.range_of(p, 0, stops[p]) for p in places]
    schema = pa.schema([info.schema.arrow.field(name) for name in names])
    if not info.has_primary_key():
        batches = _log(connection, view, ends, names, overrides)
    elif as_of is None:
        batches = read_keys(connection, info, ends, names)
    else:
        check_old_rows(info)
        batches = PlanReading(connection, _plan(view, ends, names, "state")).batches()
    return pa.RecordBatchReader.from_batches(schema, batches)


def _named(view: TableView, offsets: Offsets) -> dict[Place, int]:
    """Offsets that a caller gives; a bucket that they do not name would be left out silently."""
    given = known_offsets(view, offsets)
    missing = [place for place in view.latest if place not in given]
    if missing:
        raise PositionUnknownError(view.identity, missing)
    return given


def read_receipt(
    connection: FlussConnection, receipt: Receipt, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """The rows in the ranges of a receipt of a log table, as far as the log still holds them.

    Rows that others wrote into the same ranges meanwhile are among them.
    """
    core = connection.core
    view = runtime().call(
        observe(core.backend, connection.config.resolved_alias(), receipt.table.path)
    )
    check_identity(receipt.table, view.identity)
    if view.info.has_primary_key():
        raise SchemaError(
            f"{receipt.table.path} has a primary key: its ranges are changes, not rows"
        )
    names = _names(view.info, columns)
    schema = pa.schema([view.info.schema.arrow.field(name) for name in names])
    ranges = [r for r in receipt.ranges if r.count]
    return pa.RecordBatchReader.from_batches(schema, _tail_batches(connection, view, ranges, names))


def _names(info: TableInfo, columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return tuple(info.get_column_names())
    if isinstance(columns, str) or not columns:
        raise SchemaError(f"columns takes a list of names, not {columns!r}")
    return tuple(info.schema.column(name).name for name in columns)


def _partition_id(view: TableView, partition: str | Mapping[str, str] | None) -> int | None:
    if partition is None:
        return None
    keys = view.info.partition_keys
    name = partition if isinstance(partition, str) else spec_to_name(partition, keys)
    for found, known in view.partitions.items():
        if known == name:
            return found
    raise PartitionNotExistError(f"{view.info.table_path} has no partition '{name}'")


def _plan(
    view: TableView, ranges: Sequence[BucketRange], names: Sequence[str], kind: str
) -> ScanPlan:
    return ScanPlan(
        name="read_table",
        run_key="read_table",
        table=view.identity,
        schema_id=view.info.schema_id,
        columns=tuple(names),
        metadata_columns=(),
        ranges=tuple(ranges),
        kind=kind,
    )


def _log(
    connection: FlussConnection,
    view: TableView,
    ends: Sequence[BucketRange],
    names: Sequence[str],
    overrides: Mapping[str, str] | None,
) -> Iterator[pa.RecordBatch]:
    opened = _opened(connection, view.info, names, overrides)
    parts, tail = _cut(connection, view, ends, {} if opened is None else opened[1])
    return itertools.chain(
        () if opened is None else _lake_batches(opened[0], parts),
        _tail_batches(connection, view, tail, names),
    )


@dataclass(frozen=True, slots=True)
class LakeAndTail:
    """What of a log table comes from which place; each range can be read by itself."""

    snapshot_id: int | None
    """The snapshot of the lake that holds `in_lake`."""
    in_lake: list[BucketRange]
    tail: list[BucketRange]


def lake_and_tail(
    connection: FlussConnection,
    view: TableView,
    ends: Sequence[BucketRange],
    overrides: Mapping[str, str] | None = None,
) -> LakeAndTail:
    """Where the rows of a log table are, up to the ends of these ranges."""
    names = view.info.get_column_names()
    opened = _opened(connection, view.info, names, overrides)
    if opened is None:
        return LakeAndTail(None, *_cut(connection, view, ends, {}))
    return LakeAndTail(opened[0].snapshot_id, *_cut(connection, view, ends, opened[1]))


def read_lake_part(
    connection: FlussConnection,
    info: TableInfo,
    snapshot_id: int,
    part: BucketRange,
    names: Sequence[str],
    overrides: Mapping[str, str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one range of `LakeAndTail.in_lake`."""
    table = load_lake_table(info, connection.config.resolved_alias(), overrides)
    yield from LakeRead(table, snapshot_id, info, names, ()).batches(part)


def _opened(
    connection: FlussConnection,
    info: TableInfo,
    names: Sequence[str],
    overrides: Mapping[str, str] | None,
) -> tuple[LakeRead, Mapping[Place, int]] | None:
    return open_lake(connection, info, names, (), overrides) if has_lake(info) else None


def _cut(
    connection: FlussConnection,
    view: TableView,
    ends: Sequence[BucketRange],
    held: Mapping[Place, int],
) -> tuple[list[BucketRange], list[BucketRange]]:
    """The ranges that the lake holds, and those that only the log has."""
    earliest = runtime().call(
        offsets_of(connection.core.backend, view.info, view.partition_ids(), OffsetSpec.earliest())
    )
    parts, tail = [], []
    for end in ends:
        cut = min(end.stop, held.get(end.place, 0))
        if cut > 0:
            parts.append(
                BucketRange(end.partition_id, end.partition, end.bucket, FROM_THE_FIRST, cut)
            )
        start = max(cut, earliest.get(end.place, 0)) if cut == 0 else cut
        if start < end.stop:
            tail.append(view.range_of(end.place, start, end.stop))
    return parts, tail


def _lake_batches(read: LakeRead, parts: Sequence[BucketRange]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from read.batches(part)


def _tail_batches(
    connection: FlussConnection, view: TableView, tail: Sequence[BucketRange], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    if tail:
        yield from PlanReading(connection, _plan(view, tail, names, "log")).batches()


def read_keys(
    connection: FlussConnection,
    info: TableInfo,
    ends: Sequence[BucketRange],
    names: Sequence[str],
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Each bucket's rows, with all changes since before they were asked for laid over them.

    With a limit, servers are asked for that many rows only, and at most that many are given.
    """
    left = limit
    index = info.schema.index
    wanted = tuple(sorted({index[name] for name in (*names, *info.primary_keys)}))
    maker = KeyMaker(info, info.primary_keys, info.physical_primary_keys)
    for end in ends:
        if left is not None and left <= 0:
            return
        asked = ALL_ROWS if left is None else left
        scanned, changes, kinds = runtime().call(_fetch(connection, info, end, wanted, asked))
        if changes is not None:
            scanned = _replayed(maker, scanned, changes, kinds)
        rows = scanned.select(list(names)).slice(0, asked)
        left = None if left is None else left - rows.num_rows
        for start in range(0, rows.num_rows, ROWS_PER_BATCH):
            yield rows.slice(start, ROWS_PER_BATCH)


async def _fetch(
    connection: FlussConnection,
    info: TableInfo,
    end: BucketRange,
    wanted: tuple[int, ...],
    limit: int,
) -> tuple[pa.RecordBatch, pa.RecordBatch | None, np.ndarray]:
    """A scan of one bucket, and the changes from the offset before it to the one after it."""
    core = connection.core
    bucket = end.table_bucket(info.table_id)
    scanned = await core.backend.limit_scan(info, bucket, limit, wanted)
    latest = await core.backend.list_offsets(
        info, end.partition_id, [end.bucket], OffsetSpec.latest()
    )
    batches, kinds = [], []
    ranges = {bucket: (end.stop, max(end.stop, latest[end.bucket]))}
    async for part in read_ranges(core.backend, info, ranges, wanted, config=core.config):
        assert part.change_types is not None
        batches.append(part.batch)
        kinds.append(part.change_types.to_numpy())
    if not batches:
        return scanned, None, np.zeros(0, np.uint8)
    return scanned, pa.concat_batches(batches), np.concatenate(kinds)


def _replayed(
    maker: KeyMaker, scanned: pa.RecordBatch, changes: pa.RecordBatch, kinds: np.ndarray
) -> pa.RecordBatch:
    """The scan with the last change of every touched key; the scan may have seen some already."""
    keys = maker.encode_many(scanned).keys.to_arrow()
    touched = maker.encode_many(changes).keys.to_arrow()
    last = {key: at for at, key in enumerate(touched.to_pylist())}
    kept = sorted(at for at in last.values() if kinds[at] in _STAYS)
    untouched = scanned.filter(pc.invert(pc.is_in(keys, value_set=touched)))
    return pa.concat_batches([untouched, changes.take(pa.array(kept, pa.int64()))])
