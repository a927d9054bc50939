"""The current state of a table in one call.

A log table: what is in the lake, then the tail that is only in the log. A key table: its rows as
the servers hold them, made exact by its changelog, or the rows of its lake with the changelog after
them. Every bucket is exact at an offset of its own,
but **the buckets are not one snapshot**: while others write, one bucket may be a little newer than
another. `as_of` pins the offsets, so that two reads give the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fluss_client import FlussConnection, OffsetSpec, TableInfo, TablePath
from fluss_client.engine import (
    BlockingState,
    async_connection,
    backend_of,
    check_old_rows,
    run_blocking,
    spec_to_name,
)
from fluss_client.errors import ConfigError, PartitionNotExistError, SchemaError
from fluss_orchestrate.core.errors import PositionUnknownError
from fluss_orchestrate.core.incremental.planning.bounds import known_offsets
from fluss_orchestrate.core.incremental.planning.guards import check_identity
from fluss_orchestrate.core.incremental.planning.late_rows import observe_for_read
from fluss_orchestrate.core.incremental.planning.observation import (
    TableView,
    observe_table,
    offsets_of,
)
from fluss_orchestrate.core.incremental.planning.settings import Offsets
from fluss_orchestrate.core.incremental.reading.reader import PlanReading
from fluss_orchestrate.core.lake.catalog import has_lake, load_lake_table
from fluss_orchestrate.core.lake.covers import LakeTarget, Target, resolve_target
from fluss_orchestrate.core.lake.errors import LakeRangeError, NoLakeError
from fluss_orchestrate.core.lake.key_reader import KeyPart, KeyReader, lake_parts, union_parts
from fluss_orchestrate.core.lake.known_lake import KnownLake
from fluss_orchestrate.core.lake.reader import FROM_THE_FIRST, LakeRead, open_lake
from fluss_orchestrate.core.plan import BucketRange, Place, ScanPlan
from fluss_orchestrate.core.receipts import Receipt, whole_position
from fluss_orchestrate.deprecated import accepts_old_parameters

SMALL_LIMIT = 10_000
READS = ("current", "lake", "union")
"""What `read_table` can read."""


@accepts_old_parameters("read_table")
def read_table(
    connection: FlussConnection,
    table: TablePath | str,
    columns: Sequence[str] | None = None,
    partition: str | Mapping[str, str] | None = None,
    as_of: Target | LakeTarget | None = None,
    *,
    catalog: Mapping[str, str] | None = None,
    limit: int | None = None,
    read: str = "current",
    on_late_rows: str = "read",
) -> pa.RecordBatchReader:
    """Read all rows of a table, batch by batch, in bounded memory.

    Each bucket is exact by itself; the buckets together are not one snapshot. The rows of a key
    table come from its latest KV snapshot and the changelog after it. Partitions that were dropped
    are not read, even if the lake still has them. Rows that were written for expired partitions
    (Fluss 1.0) are among those of a log table; a key table that takes such rows is refused unless
    `on_late_rows` is `note`, because their keys are in the lake.

    Args:
        connection: The connection to the cluster.
        table: The table, as a path or as `database.table`.
        columns: The columns to read; None reads all.
        partition: The name of a partition, or its values by column; None reads all partitions.
        as_of: A time, offsets, a receipt or a plan: the rows as they were there. The log (of a key
            table: its changelog, with old rows) must still exist from that offset on.
        catalog: Properties of the Iceberg catalog that replace those of the table's lake.
        limit: The largest number of rows. Any rows are returned, and a key table is not read to its
            end.
        on_late_rows: What to do about rows of expired partitions: `read` them, leave them out
            (`note`), or `fail`.

    `read` is `current`, `lake` or `union`. `lake` returns what the newest readable snapshot of the
    lake holds. `union` returns the current rows from the lake and the log after it, which is what
    `current` does for a log table; of a key table it needs no KV snapshot, and `as_of` works
    without old rows in the changelog where a lake snapshot is early enough.

    Raises:
        LateRowsError: The table takes rows of expired partitions, and they cannot or shall not be
            read.
        StateUnavailableError: A bucket of a key table has no KV snapshot that can be opened, no
            complete changelog, and too many rows to be collected by a server; raised when that
            bucket is read.
        ScanLostError: The server was lost while it collected a bucket's rows.
        UnsupportedError: `as_of` for a key table whose changelog has no old rows
            (`table.changelog.image` is not FULL).
        NoLakeError: `read` is `lake` or `union`, and the table has no lake.
        LakeRangeError: `read` is `lake`, and nothing of the table is in the lake yet.
        EqualityDeleteError: Deletes in the lake of a key table cannot be applied.
        ConfigError: `read` is something else, or `as_of` is combined with `lake`.
    """
    _check_read(read, as_of)
    path = TablePath.parse(table) if isinstance(table, str) else table
    core = async_connection(connection)
    info = run_blocking(backend_of(core).get_table_info(path))
    # A partition that exists has all of its rows.
    policy = on_late_rows if partition is None else "note"
    view = run_blocking(observe_for_read(core, info, policy))
    names = _names(info, columns)
    stops = view.latest if as_of is None else ends_as_of(connection, view, as_of)
    chosen = _partition_id(view, partition)
    places = [
        p for p in view.latest if stops.get(p, 0) > 0 and (partition is None or p[0] == chosen)
    ]
    ends = [view.range_of(p, 0, stops[p]) for p in places]
    schema = pa.schema([info.schema.arrow.field(name) for name in names])
    if read == "lake":
        batches = _lake(connection, view, ends, names, catalog)
    elif not info.has_primary_key():
        batches = _log(connection, view, ends, names, catalog)
    elif read == "union":
        reader = KeyReader(connection, info, names, catalog)
        batches = _parts(reader, union_parts(connection, view, ends, catalog))
    elif as_of is None:
        batches = read_keys(connection, info, ends, names, limit)
    else:
        check_old_rows(info)
        batches = PlanReading(connection, _plan(view, ends, names, "state")).batches()
    if limit is not None:
        batches = _first_rows(batches, limit)
    return pa.RecordBatchReader.from_batches(schema, batches)


def ends_as_of(
    connection: FlussConnection, view: TableView, as_of: Target | LakeTarget
) -> Mapping[Place, int]:
    """Return the offsets up to which a table is read as it was at a moment.

    Args:
        connection: The connection.
        view: The table.
        as_of: A time, offsets, a receipt or a plan.

    Raises:
        TableIdentityChangedError: A receipt or a plan is of another table.
        PositionUnknownError: Offsets leave out a bucket.
        NotYetError: The offsets of a time are not final yet.
    """
    if isinstance(as_of, (ScanPlan, Receipt)):
        check_identity(as_of.table, view.identity)
        return whole_position(as_of, view.latest)
    if isinstance(as_of, (Mapping, LakeTarget)):
        return _named(view, as_of if isinstance(as_of, Mapping) else as_of.offsets)
    core = async_connection(connection)
    return run_blocking(resolve_target(core, view.info.table_path, as_of)).offsets


def _check_read(read: str, as_of: object) -> None:
    if read not in READS:
        raise ConfigError(f"read takes one of {', '.join(READS)}, not {read!r}")
    if read == "lake" and as_of is not None:
        raise ConfigError("a lake snapshot is read as it is: use as_of with read='union'")


def _parts(reader: KeyReader, parts: Sequence[KeyPart]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from reader.batches(part)


def _lake(
    connection: FlussConnection,
    view: TableView,
    ends: Sequence[BucketRange],
    names: Sequence[str],
    overrides: Mapping[str, str] | None,
) -> Iterator[pa.RecordBatch]:
    """What the lake holds, and nothing of the log."""
    if view.info.has_primary_key():
        reader = KeyReader(connection, view.info, names, overrides)
        return _parts(reader, lake_parts(connection, view, ends, overrides))
    if not has_lake(view.info):
        raise NoLakeError(view.info.table_path)
    opened = _opened(connection, view.info, names, overrides)
    if opened is None:
        raise LakeRangeError(view.info.table_path, "nothing of it is in the lake yet")
    return _lake_batches(opened[0], _cut(connection, view, ends, opened[1])[0])


def _first_rows(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    while left > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, left)
        left -= batch.num_rows


def _named(view: TableView, offsets: Offsets) -> dict[Place, int]:
    """Return offsets that a caller passed, and refuse those that leave out a bucket."""
    given = known_offsets(view, offsets)
    missing = [place for place in view.latest if place not in given]
    if missing:
        raise PositionUnknownError(view.identity, missing)
    return given


def read_receipt(
    connection: FlussConnection, receipt: Receipt, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """Return the rows in the ranges of a receipt of a log table that the log still has.

    Rows that others wrote into the same ranges meanwhile are among them.
    """
    core = async_connection(connection)
    view = run_blocking(observe_table(core, receipt.table.path))
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
    """Which ranges of a log table are in the lake, and which are only in the log."""

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
    """Return where the rows of a log table are, up to the ends of these ranges."""
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
    """Return the rows of one range of `LakeAndTail.in_lake`."""
    table = load_lake_table(info, connection.config.resolved_alias(), overrides)
    yield from LakeRead(KnownLake(connection, info), table, snapshot_id, names).batches(part)


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
    """Return the ranges that the lake has, and those that only the log has."""
    earliest = run_blocking(
        offsets_of(backend_of(connection), view.info, view.partition_ids(), OffsetSpec.earliest())
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
    """Return the current rows of each bucket, one bucket after the other.

    Args:
        connection: The connection.
        info: A table with a primary key.
        ends: The buckets.
        names: The columns.
        limit: The number of rows to return at most.
    """
    left = limit
    for end in ends:
        if left is not None and left <= 0:
            return
        bucket = end.table_bucket(info.table_id)
        if left is not None and left <= SMALL_LIMIT:
            # A server stops after so many rows, which costs less than to open a snapshot.
            index = info.schema.index
            wanted = tuple(sorted({index[name] for name in names}))
            scan = backend_of(connection).limit_scan(info, bucket, left, wanted)
            rows = run_blocking(scan).select(list(names))
            left -= rows.num_rows
            yield rows
            continue
        with BlockingState(async_connection(connection), info, bucket, columns=names) as state:
            for batch in state:
                rows = batch if left is None else batch.slice(0, left)
                left = None if left is None else left - rows.num_rows
                yield rows
                if left is not None and left <= 0:
                    break
