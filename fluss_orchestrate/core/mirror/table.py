"""Keeping a sink equal to a key table.

A mirror is an increment with fixed settings. Its first plan is the state of the table, each further
plan is the changes since. The sink applies the last change of each key of a plan, and stores its
position in the same transaction (`core/sinks`). So the sink equals the table at the offsets of its
position, after every commit.

`reset` to `start` rebuilds a mirror: a new generation begins with the state, and the sink replaces
all its rows by it in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fluss_client import FlussConnection, TablePath
from fluss_client.engine import has_old_rows, table_info
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.incremental.planning.settings import Until
from fluss_orchestrate.core.incremental.reading.reader import ProgressHook
from fluss_orchestrate.core.incremental.run import ScanRun
from fluss_orchestrate.core.incremental.scan import IncrementalScan
from fluss_orchestrate.core.job import JobResult, run_increment
from fluss_orchestrate.core.sinks.base import Sink, SinkForm, identity_of
from fluss_orchestrate.core.sinks.errors import SinkFormError

FIXED = ("start", "metadata_columns", "on_retention", "on_partition_gone")
"""Settings of a scan that a mirror needs as they are."""


def mirror_scan(
    connection: FlussConnection,
    table: TablePath | str,
    checkpoint: str,
    *,
    form: SinkForm | str = SinkForm.MIRROR,
    store: CheckpointStore | None = None,
    columns: Sequence[str] | None = None,
    scan_options: Mapping[str, Any] | None = None,
) -> IncrementalScan:
    """Return the scan of a mirror or a history: its settings are those that the form needs.

    Args:
        connection: The connection to the cluster of the table.
        table: The key table.
        checkpoint: The name of the checkpoint.
        form: `mirror` or `history`.
        store: The store of the checkpoint; a table of the same cluster by default.
        columns: The columns to copy; all by default. The primary key must be among them.
        scan_options: Further settings of `IncrementalScan`, except those that the form fixes.

    Raises:
        ConfigError: An option is fixed by the form, or the form is neither of the two.
    """
    form = SinkForm(form)
    if not form.follows_state:
        raise ConfigError(f"form is mirror or history, not '{form}'")
    options = dict(scan_options or {})
    fixed = [name for name in FIXED if name in options]
    if fixed:
        raise ConfigError(f"a {form} sets {', '.join(fixed)} itself; leave it out of scan_options")
    path = TablePath.parse(table) if isinstance(table, str) else table
    info = table_info(connection, path)
    # Without old rows in the changelog, a state cannot be read twice alike: begin with the log.
    start = "state" if has_old_rows(info) else "earliest"
    return IncrementalScan(
        connection,
        path,
        checkpoint,
        store=store,
        columns=columns,
        start=start,
        metadata_columns=form.metadata_columns,
        on_partition_gone="delete" if info.is_partitioned() else "fail",
        **options,
    )


def require_state_form(sink: Sink) -> SinkForm:
    """Return the form of a sink that keeps a mirror or a history.

    Raises:
        SinkFormError: The sink keeps neither.
    """
    form: SinkForm | None = getattr(sink, "form", None)
    if form is None or not form.follows_state:
        raise SinkFormError(
            identity_of(sink), "it adds rows, and does not replace them: open it with form='mirror'"
        )
    return form


def mirror_table(
    connection: FlussConnection,
    table: TablePath | str,
    sink: Sink,
    run_key: str,
    *,
    checkpoint: str,
    until: Until = "latest",
    max_offsets: int | None = None,
    store: CheckpointStore | None = None,
    columns: Sequence[str] | None = None,
    scan_options: Mapping[str, Any] | None = None,
    progress: ProgressHook | None = None,
    planned: Callable[[ScanRun], None] | None = None,
) -> JobResult:
    """Bring a sink up to the current rows of a key table, exactly once.

    The first call writes the state of the table. Each further call applies the changes since the
    last one. A call that was killed continues with the same plan.

    Args:
        connection: The connection to the cluster of the table.
        table: The key table.
        sink: A sink of form `mirror` or `history`.
        run_key: Names this run, for example by the scheduler's run id.
        checkpoint: The name of the checkpoint.
        until: Where the changes end: at the latest offsets, or at a time. The first run writes the
            latest state.
        max_offsets: The most offsets of the changelog that one plan takes.
        store: The store of the checkpoint; a table of the same cluster by default.
        columns: The columns to copy; all by default. The primary key must be among them.
        scan_options: Further settings of `IncrementalScan`.
        progress: Called with the progress of each plan.
        planned: Called with each plan's run before its rows are read.

    Returns:
        The receipt of this run's plan, and those of pending plans that it finished first.

    Raises:
        SinkFormError: The sink keeps neither a mirror nor a history, or the table has no key.
    """
    form = require_state_form(sink)
    scan = mirror_scan(
        connection,
        table,
        checkpoint,
        form=form,
        store=store,
        columns=columns,
        scan_options=scan_options,
    )
    return run_increment(
        scan, sink, run_key, until, max_offsets=max_offsets, progress=progress, planned=planned
    )
