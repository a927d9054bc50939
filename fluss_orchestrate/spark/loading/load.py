"""A bulk load, as its driver runs it: input, cut, pins, tasks, receipt.

Everything that decides a row's number is recorded before a task runs. So this may be started
again with the same load id, at once or days later, and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fluss_client import FlussConnection, TableInfo
from fluss_client.engine import backend_of, run_blocking, table_info
from fluss_client.errors import (
    CorruptDataError,
    FlussError,
)
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental.planning.observation import observe_offsets
from fluss_orchestrate.core.loading.errors import LoadError, RowsDifferError, differ_text
from fluss_orchestrate.core.loading.units import CHANGE_TYPE
from fluss_orchestrate.core.plan import Position
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec
from fluss_orchestrate.spark.loading import staging
from fluss_orchestrate.spark.loading.fitting import Fitter
from fluss_orchestrate.spark.loading.places import list_files
from fluss_orchestrate.spark.loading.splits import (
    Footer,
    Header,
    Split,
    SplitLedger,
    SplitResult,
    batch_rows_of,
    cut,
    digest_of_input,
    read_footers,
    unit_rows_of,
)
from fluss_orchestrate.spark.loading.task import LoadTask
from fluss_orchestrate.spark.loading.waves import Say, say, send_splits
from fluss_orchestrate.spark.setup import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class LoadInput:
    """The input of a load: Parquet files that stay as they are."""

    footers: list[Footer]
    digest: str
    staged: str | None


def run_load(
    spark: SparkSession,
    spec: BulkLoadSpec,
    cluster: ClusterRef,
    *,
    frame: DataFrame | None = None,
    on_line: Say = say,
) -> Receipt:
    """Load the rows of a spec into its table, once under its load id.

    Args:
        spark: The session.
        spec: The load.
        cluster: The cluster.
        frame: A DataFrame that replaces the source of the spec. It is staged.
        on_line: Called with each line of the report.

    Returns:
        The receipt of the whole load.
    """
    started_ms = now_ms()
    connection = cluster.connection()
    if spec.provision is not None:
        apply_tables(connection, [TableSpec.from_mapping({"table": spec.table, **spec.provision})])
    info = table_info(connection, spec.table)
    ledger = SplitLedger(connection, info, spec.load_id)
    done = ledger.receipt()
    if done is not None:
        on_line(f"load {spec.load_id} into {spec.table} was done before: {done.rows:,} rows")
        return done
    ledger.enter()
    header, rows_in = _begun(spark, spec, connection, info, ledger, frame)
    splits = cut(rows_in.footers, header.unit_rows)
    task = _task(spec, cluster, info, header, rows_in)
    results, retries, resumed = send_splits(spark, ledger, task, splits, on_line)
    receipt = _receipt(spec, connection, info, header, splits, results, started_ms)
    receipt = replace(
        receipt, details={**receipt.details, "retries": retries, "resumed_splits": resumed}
    )
    receipt = ledger.finish(receipt)
    if header.staged is not None and not spec.keep_staging:
        staging.remove_staging(header.staged.rpartition("/")[0])
    on_line(f"load {spec.load_id} into {spec.table} is done: {receipt.rows:,} rows")
    return receipt


def check_target(spec: BulkLoadSpec, cluster: ClusterRef) -> None:
    """Raise early if there is no table and none is to be created."""
    if spec.provision is None:
        table_info(cluster.connection(), spec.table)


def _begun(
    spark: SparkSession,
    spec: BulkLoadSpec,
    connection: FlussConnection,
    info: TableInfo,
    ledger: SplitLedger,
    frame: DataFrame | None,
) -> tuple[Header, LoadInput]:
    """Return the load as it was begun, now or by an earlier attempt, with its input."""
    header = ledger.header()
    if header is None:
        found = _first_input(spark, spec, info, frame)
        columns = _checked_columns(spec, info, found)
        batch_rows = batch_rows_of(info, found.footers, spec.batch_bytes)
        before = run_blocking(
            observe_offsets(backend_of(connection), cluster_alias(connection), info)
        ).latest
        header = ledger.begin(
            Header(
                batch_rows,
                unit_rows_of(info, batch_rows),
                found.digest,
                found.staged,
                before,
                columns,
            )
        )
        if header.staged == found.staged and header.digest == found.digest:
            _check_same_columns(spec, header)
            return header, found
    again = _input([header.staged], header.staged) if header.staged else _direct(spec)
    if again is None or again.digest != header.digest:
        what = "other files, or they were changed since"
        raise RowsDifferError(spec.table, spec.load_id, differ_text(what))
    _check_same_columns(spec, header)
    return header, again


def _check_same_columns(spec: BulkLoadSpec, header: Header) -> None:
    """Raise if table columns come from other source columns than when the load was begun."""
    begun = header.columns
    if begun is None:
        return
    now = {name: spec.columns.get(name, name) for name in {*begun, *spec.columns}}
    changed = [
        f"column {name} came from {begun.get(name, 'no column')} and comes from {source}"
        for name, source in sorted(now.items())
        if begun.get(name) != source
    ]
    if changed:
        raise RowsDifferError(spec.table, spec.load_id, differ_text("; ".join(changed)))


def cluster_alias(connection: FlussConnection) -> str:
    """Return the alias of a connection's cluster."""
    return connection.config.resolved_alias()


def _first_input(
    spark: SparkSession, spec: BulkLoadSpec, info: TableInfo, frame: DataFrame | None
) -> LoadInput:
    direct = None if frame is not None else _direct(spec)
    if direct is not None:
        return direct
    folder = staging.staging_folder(spec, info, is_local(spark))
    rows = staging.source_frame(spark, spec, info, frame)
    _check_changes(spec, info, rows.columns)
    staged = staging.stage(spark, rows, folder)
    return _input([staged], staged)


def _direct(spec: BulkLoadSpec) -> LoadInput | None:
    paths = staging.direct_files(spec)
    return None if paths is None else _input(paths, None)


def _input(paths: Sequence[str], staged: str | None) -> LoadInput:
    files = list_files(paths)
    return LoadInput(read_footers(files), digest_of_input(files), staged)


def _checked_columns(spec: BulkLoadSpec, info: TableInfo, found: LoadInput) -> dict[str, str]:
    """Return the source column of each table column.

    Raises:
        LoadError: The input cannot go into the table.
    """
    _check_changes(spec, info, found.footers[0].schema.names)
    try:
        fitter = Fitter(info, found.footers[0].schema, spec.columns, spec.source.kind == "csv")
        return fitter.source_of
    except FlussError as error:
        raise LoadError(spec.table, spec.load_id, f"the input does not fit: {error}") from error


def _check_changes(spec: BulkLoadSpec, info: TableInfo, columns: Sequence[str]) -> None:
    """Refuse changes of a key table without an order: splits are sent in parallel."""
    if CHANGE_TYPE in columns and info.has_primary_key() and spec.order_by is None:
        raise LoadError(
            spec.table,
            spec.load_id,
            f"the input has the column {CHANGE_TYPE}, and a load sends its parts in parallel, so "
            "the changes of one key could be applied in any order: set order_by to the column that "
            "says which change of a key is the last, such as _offset (any key column if each key "
            "is there once)",
        )


def _task(
    spec: BulkLoadSpec, cluster: ClusterRef, info: TableInfo, header: Header, rows_in: LoadInput
) -> LoadTask:
    return LoadTask(
        cluster,
        spec.table,
        info.table_id,
        spec.load_id,
        header.batch_rows,
        dict(spec.columns if header.columns is None else header.columns),
        spec.source.kind == "csv",
        spec.create_partitions,
        spec.dead_letter,
        None if header.columns is None else tuple(header.columns),
    )


def _receipt(
    spec: BulkLoadSpec,
    connection: FlussConnection,
    info: TableInfo,
    header: Header,
    splits: Sequence[Split],
    results: dict[int, SplitResult],
    started_ms: int,
) -> Receipt:
    rows = sum(result.rows for result in results.values())
    rejected = sum(result.rejected for result in results.values())
    wanted = sum(split.rows for split in splits)
    if rows + rejected != wanted or len(results) != len(splits):
        raise CorruptDataError(
            f"load {spec.load_id} into {spec.table}: {rows} rows were sent and {rejected} set "
            f"aside, of {wanted}"
        )
    alias = cluster_alias(connection)
    after = run_blocking(observe_offsets(backend_of(connection), alias, info))
    before: Position = header.before
    ranges = tuple(
        after.range_of(place, before.get(place, 0), stop)
        for place, stop in after.latest.items()
        if stop > before.get(place, 0)
    )
    return Receipt(
        kind="bulk_load",
        table=TableIdentity.of(alias, info),
        run_key=spec.load_id,
        ranges=ranges,
        rows=rows,
        bytes=sum(result.bytes for result in results.values()),
        started_ms=min(started_ms, header.created_ms),
        finished_ms=now_ms(),
        details={
            "exactly_once": True,
            "units": sum(len(split.unit_rows) for split in splits),
            "splits": len(splits),
            "rejected": rejected,
            "staged": header.staged is not None,
        },
    )
