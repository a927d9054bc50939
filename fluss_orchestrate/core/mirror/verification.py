"""The proof that a mirror equals its table, at one offset per bucket.

The position that the mirror stores with its rows decides the offsets. The rows of the table at
these offsets come from the state reader, so that the table may go on while it is compared. Both
sides are streamed once: each row becomes a 64-bit hash, and hashes are added up per bucket, which
needs no order. The hashes of a bucket are added up in slices, by a hash of the key.

Only if a bucket differs, both sides are streamed again, and the rows of some slices that differ
are compared key by key. So memory depends on the number of buckets and on the size of a slice, not
on the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa

from fluss_client import FlussConnection, TableInfo, TablePath
from fluss_client.engine import (
    ArrowInput,
    Placement,
    async_connection,
    backend_of,
    counts_of_rows,
    run_blocking,
)
from fluss_orchestrate.core.checkpoints.events import EventKind
from fluss_orchestrate.core.checkpoints.fluss_store import FlussCheckpointStore
from fluss_orchestrate.core.checkpoints.position import TablePosition, place_order
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.incremental.planning.guards import check_identity
from fluss_orchestrate.core.incremental.planning.observation import observe_table
from fluss_orchestrate.core.incremental.reading.columns import plan_schema
from fluss_orchestrate.core.incremental.reading.reader import (
    PlanReading,
    ProgressHook,
    ReadOptions,
    pinned_table,
)
from fluss_orchestrate.core.mirror.checksums import (
    SLICES,
    Flags,
    HashedRows,
    Ints,
    Places,
    RowTally,
    SelectedRows,
    compare_rows,
)
from fluss_orchestrate.core.mirror.comparison import (
    BucketComparison,
    KeyDifference,
    MirrorAbsentError,
    MirrorComparison,
    MirrorMovedError,
    first_differences,
)
from fluss_orchestrate.core.plan import BucketRange, ScanPlan
from fluss_orchestrate.core.row_schema import primary_key_of
from fluss_orchestrate.core.sinks.base import MirrorRows, MirrorSink, Sink, SinkForm, identity_of
from fluss_orchestrate.core.sinks.errors import SinkFormError, SinkSchemaError

ROWS_COMPARED_MAX = 1_000_000
"""Rows of differing slices that are compared key by key; at least one slice is."""
ATTEMPTS_MAX = 3
"""How often a comparison begins anew because the mirror was written meanwhile."""
HISTORY_MAX = 200
"""Events of the checkpoint in which its last committed plan is looked for."""

_PLACE_COLUMNS = ("_bucket", "_partition")


def verify_mirror(
    connection: FlussConnection,
    table: TablePath | str,
    sink: Sink,
    checkpoint: str,
    *,
    store: CheckpointStore | None = None,
    columns: Sequence[str] | None = None,
    keys_shown_max: int = 10,
    progress: ProgressHook | None = None,
) -> MirrorComparison:
    """Compare a mirror with its table: counts and checksums per bucket, at the mirror's offsets.

    Values are compared in the mirror's types: what the sink stores with less precision is equal if
    it is equal in that precision.

    Args:
        connection: The connection to the cluster of the table.
        table: The key table.
        sink: The sink of the mirror, opened as for `mirror_table`.
        checkpoint: The checkpoint of the mirror.
        store: The store of the checkpoint; a table of the same cluster by default. It tells which
            columns the mirror has, unless `columns` does.
        columns: The columns to compare; by default those that the mirror copies.
        keys_shown_max: How many keys that differ are named.
        progress: Called with the progress of reading the table.

    Returns:
        The comparison. `require_equal` raises if it found a difference.

    Raises:
        MirrorAbsentError: The sink holds nothing of the checkpoint.
        MirrorMovedError: The mirror was written each time while it was compared.
        SinkFormError: The sink keeps no mirror, or cannot be read back.
        RetentionPassedError: The changelog after the mirror's offsets was deleted, so that the
            table at these offsets is not known any more. Run the mirror, then verify it.
        PartitionGoneError: A partition was dropped after the mirror's last run. Run the mirror.
        TableIdentityChangedError: The mirror is that of a table that was dropped.
        UnsupportedError: The changelog of the table has no old rows (`table.changelog.image` is not
            FULL), and the table was changed after the mirror's offsets, so that its state there
            cannot be read any more. Verify it right after a run, while nobody writes.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    mirror = _mirror_sink(sink)
    view = run_blocking(observe_table(async_connection(connection), path))
    store = FlussCheckpointStore(connection) if store is None else store
    schema_id, names = _columns_of(store, checkpoint, view.info)
    plan = ScanPlan(
        name=checkpoint,
        run_key="verify_mirror",
        table=view.identity,
        schema_id=schema_id,
        columns=_with_key(names if columns is None else columns, view.info),
        metadata_columns=_PLACE_COLUMNS,
        ranges=(),
        kind="state",
    )
    for _ in range(ATTEMPTS_MAX):
        run = _Verification(connection, view.info, mirror, plan, progress)
        found = run.compared()
        if found.equal or not keys_shown_max:
            return found
        named = run.differences(keys_shown_max)
        if named is not None:
            return replace(found, differences=named)
    raise MirrorMovedError(identity_of(sink), ATTEMPTS_MAX)


def _mirror_sink(sink: Sink) -> MirrorSink:
    form: SinkForm | None = getattr(sink, "form", None)
    if form is not SinkForm.MIRROR:
        raise SinkFormError(
            identity_of(sink), "it keeps no mirror to compare: open it with form='mirror'"
        )
    if not hasattr(sink, "read_mirror"):
        raise SinkFormError(identity_of(sink), "it has no read_mirror, so it cannot be compared")
    return cast(MirrorSink, sink)


def _columns_of(
    store: CheckpointStore, checkpoint: str, info: TableInfo
) -> tuple[int, tuple[str, ...]]:
    """Return the schema and the columns of the last committed plan.

    The table may have got columns since, which the mirror gets with its next run.
    """
    everything = info.schema_id, tuple(info.get_column_names())
    if store.head(checkpoint) is None:
        return everything
    committed: str | None = None
    for event in store.history(checkpoint, HISTORY_MAX):
        if event.kind is EventKind.COMMIT and committed is None:
            committed = event.plan_id
        elif event.kind is EventKind.PLAN and event.plan_id == committed:
            plan = event.state.pending
            if plan is not None:
                return plan.schema_id, plan.columns
    binding = store.require(checkpoint).state.binding
    if binding is None or binding.columns is None:
        return everything
    return info.schema_id, binding.columns


def _with_key(columns: Sequence[str], info: TableInfo) -> tuple[str, ...]:
    """Return the columns, and those of the key, which identify a row."""
    wanted = {*columns, *info.primary_keys}
    unknown = wanted - set(info.get_column_names())
    for name in unknown:
        info.schema.column(name)  # raises the error that names the columns
    return tuple(name for name in info.get_column_names() if name in wanted)


class _Verification:
    """One comparison of one mirror."""

    def __init__(
        self,
        connection: FlussConnection,
        info: TableInfo,
        sink: MirrorSink,
        plan: ScanPlan,
        progress: ProgressHook | None,
    ) -> None:
        self._connection = connection
        self._sink = sink
        self._plan = plan
        self._progress = progress
        alias = connection.config.resolved_alias()
        table = run_blocking(pinned_table(backend_of(connection), alias, plan))
        schema = plan_schema(plan, table)
        self._keys = primary_key_of(schema)
        self._schema = pa.schema(
            [schema.field(name) for name in plan.columns], metadata=schema.metadata
        )
        self._key_columns = [self._schema.get_field_index(name) for name in self._keys]
        self._types = self._schema
        self._placement = Placement(info)
        placed = [at for at, name in enumerate(info.schema.index) if name in self._keys]
        self._placed_input = ArrowInput(info.schema, placed)
        self._info = info
        self._counts: dict[str | None, int] = {}
        """The bucket counts of partitions, by the position of the mirror."""
        self._places = Places(info.num_buckets)
        self._source, self._mirror = RowTally(), RowTally()
        self._position: TablePosition | None = None

    def compared(self) -> MirrorComparison:
        """Stream both sides once."""
        with self._opened() as rows:
            if rows is None:
                raise MirrorAbsentError(identity_of(self._sink), self._plan.name)
            check_identity(rows.position.table, self._plan.table)
            self._position = rows.position
            self._place_by(rows.position)
            self._types = self._checked(rows.rows.schema)
            for some in self._mirror_rows(rows):
                self._mirror.add(some, self._places.count)
        for some in self._source_rows(self._ranges(rows.position)):
            self._source.add(some, self._places.count)
        self._source.grow(self._places.count)
        self._mirror.grow(self._places.count)
        return MirrorComparison(
            self._plan.table,
            identity_of(self._sink),
            self._plan.name,
            self._plan.columns,
            tuple(self._buckets(rows.position)),
        )

    def differences(self, shown_max: int) -> tuple[KeyDifference, ...] | None:
        """Stream both sides again and name keys that differ; None if the mirror has moved."""
        chosen = self._chosen(shown_max)
        with self._opened() as rows:
            if rows is None or rows.position != self._position:
                return None
            mirror = self._selected(self._mirror_rows(rows), chosen)
        wanted = {at // SLICES for at in np.flatnonzero(chosen).tolist()}
        assert self._position is not None
        ranges = [r for r in self._ranges(self._position) if self._number(r) in wanted]
        source = self._selected(self._source_rows(ranges), chosen)
        named = {number: (name, bucket) for number, name, bucket in self._places.named()}
        found = [
            KeyDifference(*named[place], key, kind, tuple(self._schema.names[c] for c in columns))
            for kind, place, key, columns in compare_rows(source, mirror, shown_max)
        ]
        return first_differences(found, shown_max)

    def _selected(self, rows: Iterator[HashedRows], chosen: Flags) -> SelectedRows:
        key = pa.schema([self._types.field(name) for name in self._keys])
        return SelectedRows.of(rows, chosen, key, len(self._types.names))

    def _chosen(self, shown_max: int) -> Flags:
        """Return which slices are compared key by key: each has at least one key that differs."""
        source, mirror = self._source, self._mirror
        differs = (source.counts != mirror.counts) | (source.sums != mirror.sums)
        slots = np.flatnonzero(differs)[:shown_max]
        sizes = np.cumsum((source.counts + mirror.counts)[slots])
        slots = slots[: max(1, int(np.searchsorted(sizes, ROWS_COMPARED_MAX, "right")))]
        chosen = np.zeros(len(differs), np.bool_)
        chosen[slots] = True
        return chosen

    def _place_by(self, position: TablePosition) -> None:
        """Place rows as the position does: it has every bucket of each partition."""
        for place in position.offsets:
            name = position.partition_name(place)
            self._counts[name] = max(self._counts.get(name, 0), place[1] + 1)
        self._places = Places(max([self._info.num_buckets, *self._counts.values()]))

    def _count_of(self, partition: str | None) -> int:
        return self._counts.get(partition, self._info.num_buckets)

    def _opened(self) -> AbstractContextManager[MirrorRows | None]:
        return self._sink.read_mirror(self._plan.name, self._schema)

    def _checked(self, found: pa.Schema) -> pa.Schema:
        """Return the mirror's types, in which both sides are compared."""
        if found.names != self._schema.names:
            lacking = [name for name in self._schema.names if name not in found.names]
            raise SinkSchemaError(
                identity_of(self._sink),
                f"it has the columns {found.names}, and {self._schema.names} are compared",
                lacking,
            )
        return found

    def _ranges(self, position: TablePosition) -> list[BucketRange]:
        return [
            BucketRange(place[0], position.partition_name(place), place[1], 0, offset)
            for place, offset in sorted(
                position.offsets.items(), key=lambda item: place_order(item[0])
            )
            if offset > 0
        ]

    def _number(self, where: BucketRange) -> int:
        return self._places.base(where.partition) + where.bucket

    def _source_rows(self, ranges: Sequence[BucketRange]) -> Iterator[HashedRows]:
        """Return the rows of the table; each batch is of one place."""
        if not ranges:
            return
        options = ReadOptions(progress=self._progress)
        plan = replace(self._plan, ranges=tuple(ranges))
        for batch in PlanReading(self._connection, plan, options).batches():
            if not batch.num_rows:
                continue
            bucket, partition = (batch.column(name)[0].as_py() for name in _PLACE_COLUMNS)
            rows = self._in_types(batch.select(self._schema.names))
            places = np.full(rows.num_rows, self._places.base(partition) + bucket, np.int64)
            yield HashedRows.of(rows, places, self._key_columns)

    def _in_types(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for column, field in zip(batch.columns, self._types, strict=True):
            try:
                columns.append(
                    column if column.type == field.type else column.cast(field.type, safe=False)
                )
            except pa.ArrowException as error:
                raise SinkSchemaError(
                    identity_of(self._sink),
                    f"column '{field.name}' is {field.type} there and {column.type} in the table, "
                    f"which cannot be compared: {error}",
                    [field.name],
                ) from error
        return pa.RecordBatch.from_arrays(columns, names=self._types.names)

    def _mirror_rows(self, rows: MirrorRows) -> Iterator[HashedRows]:
        for batch in rows.rows:
            if batch.num_rows:
                places = self._placed(batch.select(list(self._keys)))
                yield HashedRows.of(batch, places, self._key_columns)

    def _placed(self, keys: pa.RecordBatch) -> Ints:
        """Return the place of each row of the mirror, by its key."""
        places = np.zeros(keys.num_rows, np.int64)
        whole = np.ones(keys.num_rows, np.bool_)
        for column in keys.columns:
            if column.null_count:
                whole &= column.is_valid().to_numpy(zero_copy_only=False)
        if not whole.all():
            keys = keys.filter(pa.array(whole))
        if not keys.num_rows:
            return places
        fitted = self._placed_input.conform(keys)
        names, codes = self._placement.partitions(fitted)
        counts = [self._count_of(name) for name in names] or [self._count_of(None)]
        buckets = self._placement.buckets(fitted, counts_of_rows(counts, codes))
        if codes is None:
            found: Ints | int = self._places.base(None)
        else:
            found = np.array([self._places.base(name) for name in names], np.int64)[codes]
        places[whole] = found if buckets is None else found + buckets
        return places

    def _buckets(self, position: TablePosition) -> Iterator[BucketComparison]:
        offsets = {self._number(r): r.stop for r in self._ranges(position)}
        counts, sums = self._source.by_place()
        mirror_counts, mirror_sums = self._mirror.by_place()
        named = sorted(self._places.named(), key=lambda item: (item[1] or "", item[2]))
        for number, partition, bucket in named:
            rows, mirror_rows = int(counts[number]), int(mirror_counts[number])
            if rows or mirror_rows or number in offsets:
                yield BucketComparison(
                    partition,
                    bucket,
                    offsets.get(number, 0),
                    rows,
                    mirror_rows,
                    int(sums[number]),
                    int(mirror_sums[number]),
                )
