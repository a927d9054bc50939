"""What `status` shows: tables, checkpoints and lakes of one moment."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.cli.failures import one_line, sentence
from fluss_orchestrate.cli.stores import existing_store

if TYPE_CHECKING:
    from fluss_client import FlussConnection, TablePath

TABLES_AT_ONCE_MAX = 16


@dataclass(frozen=True)
class TableLine:
    """One table."""

    table: str
    kind: str = ""
    partitions: int | None = None
    rows: int | None = None
    """Rows in the log of a log table, keys of a key table."""
    lake_behind: int | None = None
    lake_age_ms: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class CheckpointLine:
    """One checkpoint."""

    name: str
    table: str
    unread: int | None = None
    age_ms: int | None = None
    pending_run: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Overview:
    """All of it."""

    address: str
    servers: int
    tables: tuple[TableLine, ...]
    checkpoints: tuple[CheckpointLine, ...]

    def to_json(self) -> dict[str, Any]:
        """The overview as plain values."""
        return asdict(self)


def look(connection: FlussConnection, database: str | None, store: str | None) -> Overview:
    """Ask for everything. What cannot be told of one table does not hide the others."""
    from fluss_client import TablePath
    from fluss_client.runtime import runtime

    admin = connection.get_admin().result()
    databases = [database] if database else sorted(admin.list_databases().result())
    paths = [TablePath(d, t) for d in databases for t in sorted(admin.list_tables(d).result())]
    servers = admin.get_server_nodes().result()
    return Overview(
        address=connection.config.resolved_bootstrap(),
        servers=len(servers),
        tables=runtime().call(_tables(connection, paths)),
        checkpoints=_checkpoints(connection, store),
    )


async def _tables(connection: FlussConnection, paths: list[TablePath]) -> tuple[TableLine, ...]:
    from fluss_client.errors import FlussError

    gate = asyncio.Semaphore(TABLES_AT_ONCE_MAX)

    async def one(path: TablePath) -> TableLine:
        async with gate:
            try:
                return await _table(connection, path)
            except FlussError as error:
                return TableLine(str(path), problem=one_line(sentence(error)))

    return tuple(await asyncio.gather(*(one(path) for path in paths)))


async def _table(connection: FlussConnection, path: TablePath) -> TableLine:
    from fluss_client.model.cluster import OffsetSpec
    from fluss_orchestrate.core.incremental.observe import observe, offsets_of
    from fluss_orchestrate.core.lake.catalog import has_lake
    from fluss_orchestrate.core.lake.status import read_status

    core = connection.core
    view = await observe(core.backend, core.config.resolved_alias(), path)
    info = view.info
    if info.has_primary_key():
        rows = await _keys(connection, path)
    else:
        ids = view.partition_ids()
        earliest = await offsets_of(core.backend, info, ids, OffsetSpec.earliest())
        rows = sum(latest - earliest.get(p, 0) for p, latest in view.latest.items())
    lake = await read_status(core, path) if has_lake(info) else None
    return TableLine(
        table=str(path),
        kind="primary key" if info.has_primary_key() else "log",
        partitions=len(view.partitions) if info.is_partitioned() else None,
        rows=rows,
        lake_behind=None if lake is None else lake.lag_offsets,
        lake_age_ms=None if lake is None else lake.lag_ms,
    )


async def _keys(connection: FlussConnection, path: TablePath) -> int | None:
    from fluss_client.errors import InvalidTableError

    try:
        stats = await connection.core.get_admin().get_table_stats(path, None)
    except InvalidTableError:
        # A table whose changelog has no old rows is not counted by anybody.
        return None
    return sum(stats.values())


def _checkpoints(connection: FlussConnection, where: str | None) -> tuple[CheckpointLine, ...]:
    from fluss_client.errors import FlussError
    from fluss_orchestrate.core.checkpoints.report import checkpoint_lag, list_checkpoints

    store = existing_store(connection, where)
    lines = []
    for summary in [] if store is None else list_checkpoints(store):
        if summary.retired or store is None:
            continue
        pending = summary.pending_run_key or None
        try:
            lag = checkpoint_lag(connection, store, summary.name)
        except FlussError as error:
            problem = one_line(sentence(error))
            lines.append(CheckpointLine(summary.name, summary.table, None, None, pending, problem))
            continue
        lines.append(CheckpointLine(summary.name, summary.table, lag.offsets, lag.age_ms, pending))
    return tuple(lines)
