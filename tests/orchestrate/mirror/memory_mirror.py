"""A mirror in memory, for tests of what stands on mirrors: rows and position change together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from fluss_orchestrate.core.last_images import LastImages
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.row_schema import partition_key_of, primary_key_of
from fluss_orchestrate.core.sinks.base import MirrorRows, ReadPlan, SinkForm, SinkResult
from fluss_orchestrate.core.sinks.position import (
    PlanState,
    SinkPosition,
    dropped_names,
    plan_state,
    position_after,
)


class MemoryMirror:
    """Keeps the current row of each key in one Arrow table."""

    exactly_once = True
    form = SinkForm.MIRROR

    def __init__(self, name: str = "memory") -> None:
        self.identity = f"memory:{name}"
        self.rows: pa.Table | None = None
        self.position: SinkPosition | None = None
        self.plan_id = ""
        self._partition_key: tuple[str, ...] = ()

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        if plan_state(self.identity, plan, self.plan_id, self.position) is PlanState.DONE:
            return SinkResult(0, moved=0)
        reader = read(plan)
        keys = primary_key_of(reader.schema)
        self._partition_key = partition_key_of(reader.schema)
        schema = pa.schema([f for f in reader.schema if f.name != "_change_type"])
        at = self.position if self.rows is not None else None
        rows = schema.empty_table()
        if at is not None and at.generation == plan.generation and self.rows is not None:
            rows = self._without(dropped_names(plan, at), schema)
        with LastImages(keys) as images:
            for batch in reader:
                images.add(batch)
            for some in images.images():
                touched = _keys(some.upserts, keys) | _keys(some.deletes, keys)
                stays = [key not in touched for key in _key_list(rows, keys)]
                added = pa.Table.from_batches([some.upserts]).cast(schema)
                rows = pa.concat_tables([rows.filter(pa.array(stays, pa.bool_())), added])
            changes = images.changes
        self.rows, self.plan_id = rows.combine_chunks(), plan.plan_id
        self.position = position_after(plan, self.position)
        return SinkResult(changes)

    def _without(self, partitions: list[str], schema: pa.Schema) -> pa.Table:
        """The rows without those of dropped partitions; columns that came later are null."""
        assert self.rows is not None
        columns = [
            self.rows[f.name].cast(f.type)
            if f.name in self.rows.schema.names
            else pa.nulls(self.rows.num_rows, f.type)
            for f in schema
        ]
        rows = pa.table(columns, schema=schema)
        keys = self._partition_key
        stays = ["$".join(key) not in partitions for key in _key_list(rows, keys)] if keys else None
        return rows if not partitions or stays is None else rows.filter(pa.array(stays, pa.bool_()))

    @contextmanager
    def read_mirror(self, name: str, schema: pa.Schema) -> Iterator[MirrorRows | None]:
        if self.rows is None or self.position is None:
            yield None
            return
        rows = self.rows.select(schema.names)
        reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=7))
        yield MirrorRows(self.position.offsets, reader)


def _key_list(rows: pa.Table | pa.RecordBatch, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.column(key).to_pylist() for key in keys), strict=True))


def _keys(rows: pa.RecordBatch, keys: Sequence[str]) -> set[tuple[Any, ...]]:
    return set(_key_list(rows, keys))
