"""Mirrors of all tables of a database.

Each table has a sink, a checkpoint and a plan of its own. A table that fails does not stop the
others, and its next run continues where it was. A table that is created later is mirrored from the
next call on; one that is dropped leaves its mirror as it was.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any

from fluss_client import FlussConnection, TablePath
from fluss_client.engine import table_info
from fluss_client.errors import ClientError, ConfigError
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.incremental.planning.settings import Until
from fluss_orchestrate.core.incremental.scan import IncrementalScan
from fluss_orchestrate.core.job import JobResult, run_increment
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.sinks.base import Sink

TABLES_AT_ONCE = 4
"""Tables that are mirrored at the same time, each on a thread."""
CHECKPOINT_PREFIX = "mirror/"
"""Begins the names of the checkpoints; the path of the table follows."""
FAILURES_SHOWN_MAX = 5
"""Tables that an error names."""
ON_LOG_TABLES = ("skip", "append")

OpenSink = Callable[[TablePath], Sink]


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What became of one table.

    Attributes:
        table: The table.
        kind: `mirror`, `append` for a log table, or `skipped` for one that was left out.
        checkpoint: The name of its checkpoint.
        result: The receipts; None if it was skipped or failed.
        error: Why it failed.
        duration_ms: How long it took.
    """

    table: TablePath
    kind: str
    checkpoint: str
    result: JobResult | None = None
    error: Exception | None = None
    duration_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; the whole receipt stays in the checkpoint store."""
        found: dict[str, Any] = {
            "table": str(self.table),
            "kind": self.kind,
            "checkpoint": self.checkpoint,
            "duration_ms": self.duration_ms,
        }
        if self.result is not None:
            receipt = self.result.receipt
            found |= {"rows": self.result.rows, "plan_id": receipt.plan_id}
        if self.error is not None:
            found["error"] = f"{type(self.error).__name__}: {self.error}"
        return found


@dataclass(frozen=True, slots=True)
class DatabaseSummary:
    """What became of the tables of a database.

    Attributes:
        database: The database.
        tables: The outcome of each table, in alphabetical order of the tables.
    """

    database: str
    tables: tuple[TableOutcome, ...]

    @property
    def failed(self) -> tuple[TableOutcome, ...]:
        """The tables that failed."""
        return tuple(one for one in self.tables if one.error is not None)

    @property
    def mirrored(self) -> tuple[TableOutcome, ...]:
        """The tables whose sinks are up to date."""
        return tuple(one for one in self.tables if one.result is not None)

    @property
    def rows(self) -> int:
        """Rows of the plans that this call has committed."""
        return sum(one.result.rows for one in self.tables if one.result is not None)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "database": self.database,
            "rows": self.rows,
            "mirrored": len(self.mirrored),
            "failed": len(self.failed),
            "skipped": len(self.tables) - len(self.mirrored) - len(self.failed),
            "tables": [one.to_json() for one in self.tables],
        }

    def require_all(self) -> None:
        """Do nothing if no table failed.

        Raises:
            MirrorDatabaseError: Some failed; it names each with its error.
        """
        if self.failed:
            raise MirrorDatabaseError(self)


class MirrorDatabaseError(ClientError):
    """Some tables of a database could not be mirrored; the others were.

    Attributes:
        summary: What became of each table.
    """

    retriable = True

    def __init__(self, summary: DatabaseSummary) -> None:
        failed = summary.failed
        first = "; ".join(f"{one.table}: {one.error}" for one in failed[:FAILURES_SHOWN_MAX])
        more = len(failed) - FAILURES_SHOWN_MAX
        super().__init__(
            f"{len(failed)} of {len(summary.tables)} tables of {summary.database} could not be "
            f"mirrored: {first}" + (f"; and {more} more" if more > 0 else "")
        )
        self.summary = summary


def mirror_database(
    connection: FlussConnection,
    database: str,
    open_sink: OpenSink,
    run_key: str,
    *,
    include: str | Sequence[str] = "*",
    exclude: str | Sequence[str] = (),
    checkpoint_prefix: str = CHECKPOINT_PREFIX,
    tables_at_once: int = TABLES_AT_ONCE,
    on_log_tables: str = "skip",
    until: Until = "latest",
    max_offsets: int | None = None,
    store: CheckpointStore | None = None,
    scan_options: Mapping[str, Any] | None = None,
    done: Callable[[TableOutcome], None] | None = None,
    on_failure: str = "raise",
) -> DatabaseSummary:
    """Bring one sink per key table of a database up to date, new tables included.

    Args:
        connection: The connection to the cluster.
        database: The database.
        open_sink: Opens the sink of a table, on a thread of its own: one of form `mirror` or
            `history` for a key table, of form `append` for a log table.
        run_key: Names this run.
        include: The tables, by name or pattern (`*`, `?`, `[a-c]`).
        exclude: Tables to leave out, by name or pattern.
        checkpoint_prefix: Begins the names of the checkpoints; the path of the table follows.
        tables_at_once: How many tables are worked on at the same time.
        on_log_tables: `skip` leaves tables without a key out; `append` writes their new rows.
        until: Where the changes end: at the latest offsets, or at a time.
        max_offsets: The most offsets that one plan of a table takes.
        store: The store of the checkpoints; a table of the same cluster by default.
        scan_options: Further settings of `IncrementalScan`.
        done: Called with each table as it is finished.
        on_failure: `raise` an error when all tables are finished, or `return` the summary.

    Returns:
        What became of each table.

    Raises:
        MirrorDatabaseError: Some tables failed; its `summary` has the others.
        ConfigError: No table matches, or an argument is none of its values.
    """
    for name, value, known in (
        ("on_log_tables", on_log_tables, ON_LOG_TABLES),
        ("on_failure", on_failure, ("raise", "return")),
    ):
        if value not in known:
            raise ConfigError(f"{name} is {' or '.join(known)}, not '{value}'")
    paths = _matching(connection, database, include, exclude)

    def work(path: TablePath) -> TableOutcome:
        name = f"{checkpoint_prefix}{path}"
        has_key = table_info(connection, path).has_primary_key()
        if not has_key and on_log_tables == "skip":
            return TableOutcome(path, "skipped", name)
        options = dict(scan_options or {})
        if has_key:
            result = mirror_table(
                connection,
                path,
                open_sink(path),
                run_key,
                checkpoint=name,
                until=until,
                max_offsets=max_offsets,
                store=store,
                scan_options=options,
            )
            return TableOutcome(path, "mirror", name, result)
        scan = IncrementalScan(connection, path, name, store=store, **options)
        result = run_increment(scan, open_sink(path), run_key, until, max_offsets=max_offsets)
        return TableOutcome(path, "append", name, result)

    outcomes = _each(paths, work, checkpoint_prefix, tables_at_once, done)
    summary = DatabaseSummary(database, tuple(outcomes))
    if on_failure == "raise":
        summary.require_all()
    return summary


def _matching(
    connection: FlussConnection,
    database: str,
    include: str | Sequence[str],
    exclude: str | Sequence[str],
) -> list[TablePath]:
    names = sorted(connection.get_admin().result().list_tables(database).result())
    wanted = [name for name in names if _matches(name, include)]
    if names and not wanted:
        raise ConfigError(
            f"no table of {database} matches {include!r}: its tables are {', '.join(names[:20])}"
        )
    return [TablePath(database, name) for name in wanted if not _matches(name, exclude)]


def _matches(name: str, patterns: str | Sequence[str]) -> bool:
    given = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in given)


def _each(
    paths: Sequence[TablePath],
    work: Callable[[TablePath], TableOutcome],
    prefix: str,
    at_once: int,
    done: Callable[[TableOutcome], None] | None,
) -> list[TableOutcome]:
    """Work on the tables, some at a time; an error of one is its outcome."""

    def timed(path: TablePath) -> TableOutcome:
        begin = time.monotonic_ns()
        try:
            found = work(path)
        except Exception as error:  # noqa: BLE001 (the other tables go on, whatever it was)
            found = TableOutcome(path, "mirror", f"{prefix}{path}", error=error)
        return replace(found, duration_ms=(time.monotonic_ns() - begin) // 1_000_000)

    pool = ThreadPoolExecutor(max(1, at_once), "fluss-mirror")
    try:
        futures: dict[Future[TableOutcome], TablePath] = {pool.submit(timed, p): p for p in paths}
        found = {}
        for future in as_completed(futures):
            outcome = found[futures[future]] = future.result()
            if done is not None:
                done(outcome)
    except BaseException:
        # A kill: tables that have not begun do not begin. The others are finished by a later run.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return [found[path] for path in paths]
