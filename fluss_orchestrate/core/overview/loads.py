"""The loads that the ledger knows, for people: how far each is, and what it has written.

The rows of the ledger are found by their keys only, so the list of loads is read from its log: the
first time from the beginning, later from where the last reading ended. The results of loads, which
are in the bodies of rows, are looked up for the loads that are shown.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from fluss_client import FlussConnection, OffsetSpec, TableBucket, TableInfo, TablePath
from fluss_client.engine import Projection, RangeReader, async_connection, backend_of, run_blocking
from fluss_client.errors import TableNotExistError
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.fluss_rows import REPLICAS_WANTED, CheckpointTable
from fluss_orchestrate.core.incremental.planning.observation import offsets_of
from fluss_orchestrate.core.loading.ledger import (
    DEFAULT_LEDGER,
    FIRST_PART,
    HEADER,
    PIN_AGE_MAX_MS,
)
from fluss_orchestrate.core.loading.ownership import DONE, LOADS, MIRROR

LOADS_KEPT_MAX = 2_000
"""Of more loads, the newest are kept."""
BATCHES_AT_ONCE = 16
DONE_SUFFIX = "#done"
_COLUMNS = ("name", "seq", "created_ms")


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """One load."""

    kind: str
    """`append` or `upsert` for loads of one process, `bulk` for loads of Spark."""
    table_id: int
    load_id: str
    table: str = ""
    """`database.table`; empty if there is no such table any more."""
    begun_ms: int = 0
    finished_ms: int | None = None
    """None while the load is not finished."""
    parts: int = 0
    """Parts that have writer ids."""
    parts_done: int | None = None
    """Parts that are known to be in the table; None for loads that do not record it."""
    rows: int | None = None
    bytes: int | None = None

    @property
    def state(self) -> str:
        """`done`, `under way`, or `expired`: begun so long ago that it cannot be continued."""
        if self.finished_ms is not None:
            return "done"
        return "expired" if now_ms() - self.begun_ms > PIN_AGE_MAX_MS else "under way"

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {**asdict(self), "state": self.state}


class LoadList:
    """The list of loads of one cluster. One thread at a time uses it.

    Args:
        connection: The cluster.
        path: The ledger's table.
    """

    def __init__(self, connection: FlussConnection, path: TablePath = DEFAULT_LEDGER) -> None:
        self._connection = connection
        self._path = path
        self._table_id = -1
        self._read_to = 0
        self._loads: OrderedDict[str, LoadFigures] = OrderedDict()

    def newest(self, count: int, tables: Mapping[int, str]) -> list[LoadFigures]:
        """Return the newest loads, the newest first. Blocks.

        Args:
            count: How many.
            tables: The paths of the tables by their ids.
        """
        core = async_connection(self._connection)
        try:
            info = run_blocking(backend_of(core).get_table_info(self._path))
        except TableNotExistError:
            return []
        if info.table_id != self._table_id:
            self._table_id, self._read_to = info.table_id, 0
            self._loads.clear()
        self._read_new(info)
        newest = list(self._loads.items())[::-1][:count]
        results = self._results(info, [name for name, load in newest if load.finished_ms])
        return [
            replace(load, table=tables.get(load.table_id, ""), **results.get(name, {}))
            for name, load in newest
        ]

    def _read_new(self, info: TableInfo) -> None:
        core = async_connection(self._connection)
        backend = backend_of(core)
        bucket = TableBucket(info.table_id, 0)
        earliest = run_blocking(offsets_of(backend, info, [None], OffsetSpec.earliest()))
        latest = run_blocking(offsets_of(backend, info, [None], OffsetSpec.latest()))
        start = max(self._read_to, earliest.get((None, 0), 0))
        stop = latest.get((None, 0), 0)
        if start >= stop:
            return
        names = info.get_column_names()
        projection = Projection.of(info.schema, [names.index(name) for name in _COLUMNS])

        async def opened() -> RangeReader:
            wanted = {bucket: (start, stop)}
            return RangeReader(backend, info, wanted, projection, core.config, True)

        reader = run_blocking(opened())
        try:
            while batches := run_blocking(reader.read(BATCHES_AT_ONCE)):
                for batch in batches:
                    self._add(batch.batch)
        finally:
            run_blocking(reader.close())
        self._read_to = stop

    def _add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch. The ledger has a few rows per load, not one per loaded row."""
        for name, seq, created_ms in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            part_done = name.endswith(DONE_SUFFIX)
            key = name.removesuffix(DONE_SUFFIX)
            load = self._loads.get(key) or _named(key, created_ms)
            if load is None:
                continue
            if part_done:
                load = replace(load, parts_done=(load.parts_done or 0) + 1)
            elif seq == HEADER:
                load = replace(load, begun_ms=created_ms)
            elif seq == DONE:
                load = replace(load, finished_ms=created_ms)
            elif seq >= FIRST_PART:
                load = replace(load, parts=load.parts + 1)
            self._loads[key] = load
            while len(self._loads) > LOADS_KEPT_MAX:
                self._loads.popitem(last=False)

    def _results(self, info: TableInfo, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        if not names:
            return {}
        core = async_connection(self._connection)

        async def ask() -> list[dict[str, Any] | None]:
            table = await CheckpointTable.open(
                backend_of(core), core.config, info.table_path, REPLICAS_WANTED
            )
            return await table.lookup([(name, DONE) for name in names])

        found = {}
        for name, row in zip(names, run_blocking(ask()), strict=True):
            if row is not None:
                body = json.loads(row["body"])
                found[name] = {"rows": body.get("rows"), "bytes": body.get("bytes")}
        return found


def _named(key: str, created_ms: int) -> LoadFigures | None:
    kind, _, rest = key.partition("/")
    table_id, _, load_id = rest.partition("/")
    if kind in (LOADS, MIRROR) or not table_id.isdigit():
        return None
    return LoadFigures(kind, int(table_id), load_id, begun_ms=created_ms)
