"""Definitions whose steps kill their own process once, in the middle of writing.

Every run executes each step in a process of its own, which is forked from one that has imported
everything.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa

from fluss_client import FlussConnection
from fluss_orchestrate import FlussTableSink, ParquetSink
from fluss_orchestrate.core.loading import sending, units
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import ReadPlan, Sink, SinkResult
from fluss_orchestrate.dagster import FlussIOManager, FlussResource, incremental_fluss_asset
from tests.dagster_integration.tables import ORDERS, orders

# Small units, so that a process can die between two of them.
units.BATCH_ROWS_MAX = 5
sending.BLOCK_UNITS = 2

ROWS = 400
RETRY = dg.RetryPolicy(max_retries=1)


def die_once(folder: Path, name: str) -> None:
    """As a machine would: no handler runs, nothing is flushed."""
    mark = folder / f"{name}.died"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def dying_reader(folder: Path, name: str) -> pa.RecordBatchReader:
    """Rows of which the process does not survive the last third."""

    def batches() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(orders(ROWS).to_batches(max_chunksize=10)):
            if number == 30:
                die_once(folder, name)
            yield batch

    return pa.RecordBatchReader.from_batches(ORDERS, batches())


class DyingTableSink(FlussTableSink):
    """Dies after one of several ranges is written."""

    marks: Path

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        parts: list[ScanPlan] = []

        def counted(part: ScanPlan) -> pa.RecordBatchReader:
            if parts:
                die_once(self.marks, "copied")
            parts.append(part)
            return read(part)

        return super().write(plan, counted)


class DyingParquetSink(ParquetSink):
    """Dies when everything is written and nothing is committed."""

    marks: Path

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        done = super().write(plan, read)
        die_once(self.marks, "files")
        return done


def crashing_job(address: str, database: str, where: str) -> dg.JobDefinition:
    """All of them, each step in a process of its own."""
    folder = Path(where)

    @dg.asset(retry_policy=RETRY)
    def appended(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        return fluss.append(context, f"{database}.appended", dying_reader(folder, "appended"))

    @dg.asset(key=[database, "stored"], retry_policy=RETRY, io_manager_key="fluss_io")
    def stored() -> pa.RecordBatchReader:
        return dying_reader(folder, "stored")

    def table_sink(connection: FlussConnection) -> Sink:
        sink = DyingTableSink(connection, f"{database}.copied")
        sink.marks = folder
        return sink

    def file_sink(connection: FlussConnection) -> Sink:
        sink = DyingParquetSink(folder / "files")
        sink.marks = folder
        return sink

    increments = [
        incremental_fluss_asset(
            name,
            table=f"{database}.source",
            sink=sink,
            checkpoint=f"{database}/{name}",
            retry_policy=RETRY,
        )
        for name, sink in (("copied", table_sink), ("files", file_sink))
    ]
    fluss = FlussResource(bootstrap_servers=address, cluster_alias="tests")
    assets = [appended, stored, *increments]
    return dg.Definitions(
        assets=assets,
        jobs=[dg.define_asset_job("crashing", dg.AssetSelection.assets(*assets))],
        resources={"fluss": fluss, "fluss_io": FlussIOManager(fluss=fluss)},
        executor=dg.multi_or_in_process_executor,
    ).resolve_job_def("crashing")
