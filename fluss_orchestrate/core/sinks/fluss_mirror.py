"""A mirror in a Fluss key table.

A Fluss table has no transaction over several buckets, so readers of the target see rows of a plan
as they arrive. What makes a plan exactly once is that every row is sent under a writer id that is
pinned in the ledger of loads (`core/loading`). A plan is up to three loads, one after the other:

1. the deletes of the rows of dropped partitions, those that an abandoned plan has written included,
2. the changes, or the state, as upserts and deletes,
3. if the plan begins a new generation: the deletes of the keys that its rows do not have.

The deletes of 1 and 3 are made of the target's own rows. All attempts must make the same ones, so
the first attempt pins the offsets of the target, and all of them read its rows at these offsets.

The ledger also has the position of each mirror: one record per plan, in their order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client import FlussConnection, OffsetSpec, TableBucket, TableInfo
from fluss_client.engine import (
    BlockingState,
    async_connection,
    backend_of,
    has_old_rows,
    run_blocking,
)
from fluss_orchestrate.core.checkpoints.fluss_rows import MERGE_ENGINE, CheckpointTable
from fluss_orchestrate.core.last_images import LastImages
from fluss_orchestrate.core.loading.ownership import (
    TableOwnership,
    first_record,
    last_record,
)
from fluss_orchestrate.core.loading.sending import BatchRows, Loaded, PinnedLoad
from fluss_orchestrate.core.loading.units import CHANGE_TYPE, LoadTarget, Unit
from fluss_orchestrate.core.plan import Place, ScanPlan
from fluss_orchestrate.core.row_schema import partition_key_of, primary_key_of
from fluss_orchestrate.core.sinks.base import MirrorRows, ReadPlan, SinkResult
from fluss_orchestrate.core.sinks.errors import (
    SinkContendedError,
    SinkFormError,
    SinkSchemaError,
)
from fluss_orchestrate.core.sinks.partition_values import partition_rows
from fluss_orchestrate.core.sinks.position import (
    PlanState,
    SinkPosition,
    check_beginning,
    dropped_names,
    plan_state,
    position_after,
)

ABANDONED_MAX = 1000
"""How many plans may be abandoned, one after the other, before one is finished."""
CLAIMS_MAX = 10
"""How often the target is claimed while other attempts of the same plan find it in use."""
LOADS_SHOWN_MAX = 3
_DELETED = "-D"
_ORDINAL = "\x01ordinal"
Ends = dict[Place, int]
MakeLoad = Callable[[str], PinnedLoad]
"""Opens a load into the target by its id."""


@dataclass(frozen=True, slots=True)
class MirrorRecord:
    """What the ledger says about the last plan of a mirror.

    Attributes:
        sequence: The number of the plan among those of the mirror.
        plan_id: The plan.
        position: Where the mirror was after it.
        ends: The offsets of the target after it: its rows there are those of the mirror.
        rows: The rows of the plan.
        size: Their bytes.
    """

    sequence: int
    plan_id: str
    position: SinkPosition
    ends: Ends
    rows: int
    size: int


class MirrorLog:
    """The records of the mirrors of one target table. Calls block."""

    def __init__(self, table: CheckpointTable, target: TableInfo) -> None:
        self._table = table
        self._ownership = TableOwnership(table, target)
        self._label = str(target.table_path)
        self._prefix = f"mirror/{target.table_id}"

    def head(self, name: str) -> MirrorRecord | None:
        """Return the last record of a mirror."""
        sequence, row = run_blocking(last_record(self._table.lookup, self._key(name)))
        if row is None:
            return None
        body = json.loads(row["body"])
        return MirrorRecord(
            sequence,
            body["plan_id"],
            SinkPosition.from_text(body["position"]),
            _ends_of(body["ends"]),
            int(body["rows"]),
            int(body["bytes"]),
        )

    def record(self, plan: ScanPlan, record: MirrorRecord) -> None:
        """Record that a plan is in the target.

        Raises:
            SinkContendedError: Another plan was recorded in its place.
        """
        body = {
            "plan_id": record.plan_id,
            "position": record.position.to_text(),
            "ends": _ends_json(record.ends),
            "rows": record.rows,
            "bytes": record.size,
        }
        stays = self._first(self._key(plan.name), record.sequence, body)
        if stays["plan_id"] != record.plan_id:
            raise SinkContendedError(self._label, f"plan {stays['plan_id']} came first")

    def claimed(
        self, plan: ScanPlan, head: MirrorRecord | None, is_empty: Callable[[], bool]
    ) -> bool:
        """Claim the target for the mirror of the plan; return whether the plan made the claim.

        Loads and rows are looked for after the claim is recorded, so that none can come in between.

        Args:
            plan: The plan.
            head: The last record of the mirror.
            is_empty: Returns whether the target has no rows.

        Raises:
            SinkFormError: The target has other rows, a load into it is not finished, or it belongs
                to another mirror.
        """
        source = plan.table.uri
        for _ in range(CLAIMS_MAX):
            claim = run_blocking(self._ownership.claimed(plan.name, source, plan.plan_id))
            if (claim.checkpoint, claim.source) != (plan.name, source):
                raise SinkFormError(
                    self._label,
                    f"it is the mirror of checkpoint '{claim.checkpoint}' ({claim.source}), and a "
                    "table has one mirror. Create another table for this one; or drop the table "
                    "and create it again",
                )
            holds, others = claim.holds, ""
            if holds is None:
                others = self._others(plan, is_empty) if head is None else ""
                holds = run_blocking(self._ownership.decide(claim, not others))
            if holds:
                return claim.plan_id == plan.plan_id
            if others:
                raise SinkFormError(self._label, others)
        raise SinkContendedError(
            self._label, f"{CLAIMS_MAX} claims of '{plan.name}' were refused by other attempts"
        )

    def _others(self, plan: ScanPlan, is_empty: Callable[[], bool]) -> str:
        """Return what keeps the target from being a mirror: loads, then the rows of loads."""
        loads = run_blocking(self._ownership.unfinished())
        if loads:
            shown = ", ".join(f"'{one}'" for one in loads[:LOADS_SHOWN_MAX])
            more = ", ..." if len(loads) > LOADS_SHOWN_MAX else ""
            return (
                f"load {shown}{more} into it is not finished, and its rows would come into the "
                f"mirror '{plan.name}'. Create another table for the mirror; or drop the table and "
                "create it again, which ends the load"
            )
        if not is_empty():
            return (
                f"the table has rows that are not of the mirror '{plan.name}', and a mirror "
                "begins with an empty table. Create another one"
            )
        return ""

    def begun(self, plan: ScanPlan, sequence: int) -> dict[int, str]:
        """Record that a plan is about to be written; return the partitions of those before it.

        A plan that is begun and then abandoned may have left rows in the target. All attempts of a
        plan get the same answer.

        Args:
            plan: The plan.
            sequence: The number that the plan will have among those of the mirror.

        Returns:
            The ids and names of the partitions of abandoned plans in the place of this one.
        """
        name = f"{self._prefix}/begun/{sequence}/{plan.name}"
        ids = {r.partition_id: r.partition for r in plan.ranges if r.partition_id is not None}
        mine = {"plan_id": plan.plan_id, "partitions": list(ids.items())}
        earlier: dict[int, str] = {}
        for number in range(ABANDONED_MAX):
            body = self._first(name, number, mine)
            if body["plan_id"] == plan.plan_id:
                return earlier
            earlier |= dict(body["partitions"])
        raise SinkContendedError(
            self._label,
            f"{ABANDONED_MAX} plans were begun and abandoned in the place of this one; `reset` the "
            "checkpoint to start",
        )

    def pinned_ends(self, plan: ScanPlan, step: str, ends: Callable[[], Ends]) -> Ends:
        """Return the offsets of the target at which a step of a plan reads it, for all attempts."""
        name = f"{self._prefix}/{plan.plan_id}/{step}"
        found = run_blocking(self._table.lookup([(name, 0)]))[0]
        if found is not None:
            return _ends_of(json.loads(found["body"])["ends"])
        return _ends_of(self._first(name, 0, {"ends": _ends_json(ends())})["ends"])

    def _key(self, name: str) -> str:
        return f"{self._prefix}/of/{name}"

    def _first(self, name: str, sequence: int, body: dict[str, Any]) -> dict[str, Any]:
        """Write a record unless there is one, and return the one that stays."""
        return run_blocking(first_record(self._table, name, sequence, body))


def _ends_json(ends: Ends) -> list[list[Any]]:
    return [[*place, offset] for place, offset in ends.items()]


def _ends_of(value: Sequence[Any]) -> Ends:
    return {(partition_id, bucket): offset for partition_id, bucket, offset in value}


class FlussMirror:
    """One target table as a mirror. Calls block.

    Args:
        connection: The connection to the cluster of the target.
        ledger: The ledger of loads.
        target: The target, as it was last looked up.
        load: Opens a load into the target.
    """

    def __init__(
        self,
        connection: FlussConnection,
        ledger: CheckpointTable,
        target: LoadTarget,
        load: MakeLoad,
    ) -> None:
        self._connection = connection
        self._core = async_connection(connection)
        self._target = target
        self._load = load
        self._label = str(target.path)
        self._log = MirrorLog(ledger, target.info)

    def done(self, plan: ScanPlan) -> SinkResult | None:
        """Return what was written for the plan; None if the plan is not finished."""
        return self._done(plan, self._log.head(plan.name))

    def _done(self, plan: ScanPlan, head: MirrorRecord | None) -> SinkResult | None:
        at = None if head is None else head.position
        if plan.is_empty and at is not None and at.generation == plan.generation:
            return SinkResult(0, 0, {"table": self._label})
        last = "" if head is None else head.plan_id
        if plan_state(self._label, plan, last, at) is PlanState.NEXT:
            return None
        rows, size = (head.rows, head.size) if head and last == plan.plan_id else (0, 0)
        return SinkResult(rows, size, {"table": self._label}, moved=0)

    def write(self, plan: ScanPlan, read: ReadPlan, units: Callable[..., Any]) -> SinkResult:
        """Bring the mirror to the end of the plan.

        Args:
            plan: The plan.
            read: Returns the rows of the plan.
            units: Cuts the rows of the plan into units, as for any load.
        """
        head = self._log.head(plan.name)
        done = self._done(plan, head)
        if done is not None:
            return done
        schema = read(plan).schema
        self._check_target(primary_key_of(schema))
        at = None if head is None else head.position
        begins = check_beginning(self._label, plan, at)
        is_first = self._log.claimed(plan, head, self._is_empty)
        sequence = 0 if head is None else head.sequence + 1
        left = self._log.begun(plan, sequence)
        deleted = 0
        names = dropped_names(plan, at)
        if not begins:
            names += _left_behind(plan, at, left, names)
        if names:
            deleted = self._delete_partitions(plan, names, schema).rows
        load = self._load(plan.plan_id)
        loaded = load.done() or load.run(units)
        if begins and not is_first:
            deleted += self._delete_absent(plan, read).rows
        record = MirrorRecord(
            sequence,
            plan.plan_id,
            position_after(plan, at),
            self._ends(),
            loaded.rows,
            loaded.bytes,
        )
        self._log.record(plan, record)
        details = {"table": self._label, "deleted_of_target": deleted}
        return SinkResult(loaded.rows, loaded.bytes, details)

    @contextmanager
    def read(self, name: str, schema: pa.Schema) -> Iterator[MirrorRows | None]:
        """Read the rows that the target had after the last plan of a mirror."""
        head = self._log.head(name)
        if head is None:
            yield None
            return
        wanted = schema.remove_metadata()

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in self._rows_at(head.ends, wanted.names):
                yield batch.cast(wanted)

        reader = pa.RecordBatchReader.from_batches(wanted, batches())
        yield MirrorRows(head.position.offsets, reader)

    def _check_target(self, key: Sequence[str]) -> None:
        info = self._target.info
        if set(info.primary_keys) != set(key) or not key:
            shown = ", ".join(info.primary_keys) or "none"
            raise SinkSchemaError(
                self._label,
                f"its primary key is {shown}, and that of the mirrored table is "
                f"{', '.join(key) or 'none'}: a mirror needs the same one",
                key,
            )
        engine = info.properties.get(MERGE_ENGINE, "")
        if engine or not has_old_rows(info):
            raise SinkSchemaError(
                self._label,
                "a mirror needs a table that keeps the last row of a key, and whose changelog has "
                "old rows: create it without table.merge-engine, and with "
                "table.changelog.image=FULL",
                (),
            )

    def _places(self) -> dict[int | None, str | None]:
        """Return the partitions of the target by id; one without an id if it has none."""
        info = self._target.info
        if not info.is_partitioned():
            return {None: None}
        found = run_blocking(backend_of(self._core).list_partitions(info.table_path, None))
        return {p.partition_id: p.partition_name for p in found}

    def _ends(self) -> Ends:
        info, backend = self._target.info, backend_of(self._core)
        ends: Ends = {}
        for partition_id in self._places():
            buckets = range(run_blocking(backend.bucket_count(info, partition_id)))
            latest = backend.list_offsets(info, partition_id, buckets, OffsetSpec.latest())
            ends.update({(partition_id, b): end for b, end in run_blocking(latest).items()})
        return ends

    def _is_empty(self) -> bool:
        key = list(self._target.info.primary_keys)
        return not any(batch.num_rows for batch in self._rows_at(self._ends(), key))

    def _rows_at(self, ends: Ends, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows that the target had at some offsets, always in the same order."""
        info = self._target.info
        for (partition_id, number), end in ends.items():
            if end <= 0:
                continue
            bucket = TableBucket(info.table_id, number, partition_id=partition_id)
            with BlockingState(self._core, info, bucket, stop=end, columns=columns) as state:
                yield from state

    def _delete_partitions(self, plan: ScanPlan, names: Sequence[str], schema: pa.Schema) -> Loaded:
        """Delete the rows of the target that belong to partitions of the source."""
        load = self._load(f"{plan.plan_id}/dropped")
        done = load.done()
        if done is not None:
            return done
        keys = partition_key_of(schema)
        gone = partition_rows(self._label, names, [schema.field(key) for key in keys])
        ends = self._log.pinned_ends(plan, "dropped", self._ends)

        def is_gone(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
            found = np.zeros(batch.num_rows, np.bool_)
            for row in range(gone.num_rows):
                same = np.ones(batch.num_rows, np.bool_)
                for key in keys:
                    equal = pc.equal(batch.column(key), gone.column(key)[row])
                    same &= equal.to_numpy(zero_copy_only=False)
                found |= same
            return found

        return load.run(self._deletes(ends, is_gone))

    def _delete_absent(self, plan: ScanPlan, read: ReadPlan) -> Loaded:
        """Delete the rows of the target whose keys the rows of the plan do not have."""
        load = self._load(f"{plan.plan_id}/absent")
        done = load.done()
        if done is not None:
            return done
        ends = self._log.pinned_ends(plan, "absent", self._ends)
        absent = self._absent(plan, read, ends)
        at = 0

        def is_absent(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
            nonlocal at
            at += batch.num_rows
            return absent[at - batch.num_rows : at]

        return load.run(self._deletes(ends, is_absent))

    def _absent(self, plan: ScanPlan, read: ReadPlan, ends: Ends) -> npt.NDArray[np.bool_]:
        """Return for each row of the target, in the order of reading, whether the plan lacks it.

        The keys of the target count as deletes that the rows of the plan come after: a key whose
        last change is such a delete is one that the plan does not have.
        """
        key = list(self._target.info.primary_keys)
        kinds = pa.schema([self._target.info.schema.arrow.field(name) for name in key])
        count = 0
        with LastImages(key) as images:
            for batch in self._rows_at(ends, key):
                rows = batch.num_rows
                deletes = pa.repeat(_DELETED, rows)
                numbers = pa.array(np.arange(count, count + rows, dtype=np.int64))
                images.add(_keys(batch.columns, numbers, deletes, kinds))
                count += rows
            for batch in read(plan):
                columns = [batch.column(name) for name in key]
                none = pa.array(np.full(batch.num_rows, -1, np.int64))
                images.add(_keys(columns, none, batch.column(CHANGE_TYPE), kinds))
            absent = np.zeros(count, np.bool_)
            for part in images.images():
                numbers = part.deletes.column(_ORDINAL).to_numpy()
                absent[numbers[numbers >= 0]] = True
        return absent

    def _deletes(
        self, ends: Ends, wanted: Callable[[pa.RecordBatch], npt.NDArray[np.bool_]]
    ) -> Callable[[BatchRows], Iterator[Unit]]:
        """Return what cuts deletes of some rows of the target into units."""
        names = self._target.info.get_column_names()

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in self._rows_at(ends, names):
                mine = batch.filter(pa.array(wanted(batch)))
                if mine.num_rows:
                    yield mine.append_column(CHANGE_TYPE, pa.repeat(_DELETED, mine.num_rows))

        def units(batch_rows: BatchRows) -> Iterator[Unit]:
            fields = [self._target.info.schema.arrow.field(name) for name in names]
            schema = pa.schema([*fields, pa.field(CHANGE_TYPE, pa.string())])
            yield from self._target.cutter(schema).units(rows(), batch_rows, 0, with_digest=True)

        return units


def _left_behind(
    plan: ScanPlan, at: SinkPosition | None, left: Mapping[int, str], names: Sequence[str]
) -> list[str]:
    """Return the partitions of abandoned plans that were dropped before any plan was finished.

    The position does not have them, so that they are not among the dropped partitions of the plan.
    """
    known = {r.partition_id for r in plan.ranges}
    if at is not None:
        known |= {partition_id for partition_id, _ in at.offsets.offsets}
    gone = [name for partition_id, name in left.items() if partition_id not in known]
    return [name for name in dict.fromkeys(gone) if name not in names]


def _keys(
    columns: Sequence[pa.Array], numbers: pa.Array, changes: pa.Array, kinds: pa.Schema
) -> pa.RecordBatch:
    cast = [column.cast(field.type) for column, field in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(
        [*cast, numbers, changes.cast(pa.string())], names=[*kinds.names, _ORDINAL, CHANGE_TYPE]
    )
