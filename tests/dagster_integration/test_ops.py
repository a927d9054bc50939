"""Graph assets of several ops, and jobs of ops: what they store, load and call things."""

from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate import FlussCheckpointStore, ParquetSink
from fluss_orchestrate.dagster import FlussIOManager, FlussResource
from tests.dagster_integration.tables import append, log_ids, make_table, orders


def test_ops_of_graph_assets_and_of_jobs_hand_frames_over(
    fluss: FlussResource, connection: FlussConnection, database: str
) -> None:
    """Each run loads what it stored itself, although the tables keep the rows of all runs."""
    counts = [4]
    seen: list[list[int]] = []

    @dg.op
    def fetch() -> pa.Table:
        return orders(counts[0])

    @dg.op
    def double(rows: pd.DataFrame) -> pd.DataFrame:
        seen.append(sorted(rows["id"]))
        return rows.assign(id=rows["id"] * 2)

    @dg.op
    def look(rows) -> None:  # type: ignore[no-untyped-def]
        seen.append(sorted(rows["id"].to_pylist()))

    @dg.graph_asset(key=[database, "doubled"])
    def doubled() -> pa.Table:
        return double(fetch())  # type: ignore[no-any-return]

    @dg.job
    def by_hand() -> None:
        look(double(fetch()))

    resources = {"io_manager": FlussIOManager(fluss=fluss, database=database)}
    for count in (4, 2):
        counts[0] = count
        result = dg.materialize([doubled], resources=resources)
        [event] = result.asset_materializations_for_node(f"{database}__doubled.double")
        assert event.metadata["fluss/rows"].value == count
        assert event.metadata["dagster/table_name"].value == f"{database}.doubled"
        assert by_hand.execute_in_process(resources=resources).success
    first, second = list(range(4)), list(range(2))
    twice = [[i * 2 for i in rows] for rows in (first, second)]
    assert seen == [first, first, twice[0], second, second, twice[1]]
    assert log_ids(connection, TablePath(database, "doubled")) == sorted(twice[0] + twice[1])
    assert log_ids(connection, TablePath(database, "by_hand_fetch_result")) == sorted(
        first + second
    )


def test_an_op_without_a_database_is_told_where_to_name_one(fluss: FlussResource) -> None:
    @dg.op
    def fetch() -> pa.Table:
        return orders(1)

    @dg.job
    def nowhere() -> None:
        fetch()

    resources = {"io_manager": FlussIOManager(fluss=fluss)}
    with pytest.raises(ConfigError, match="nowhere/fetch/result names no database: give it fluss/"):
        nowhere.execute_in_process(resources=resources)


def test_ops_use_the_resource(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    """Two ops append to one table, each once; an op of a job has a checkpoint of its own."""
    path = make_table(connection, TablePath(database, "orders"))

    @dg.op
    def first(context: dg.OpExecutionContext, fluss: FlussResource) -> int:
        return int(fluss.append(context, path, orders(3)).metadata["fluss/rows"])  # type: ignore[index, arg-type]

    @dg.op
    def second(
        context: dg.OpExecutionContext, fluss: FlussResource, before: int
    ) -> dg.MaterializeResult:
        return fluss.append(context, path, orders(2, first=before))

    @dg.op
    def copy(context: dg.OpExecutionContext, fluss: FlussResource) -> int:
        done = fluss.incremental(context, path, ParquetSink(tmp_path))
        return int(done.metadata["fluss/rows"])  # type: ignore[index, arg-type]

    @dg.graph_asset(key=[database, "orders"])
    def both() -> dg.MaterializeResult:
        return second(first())  # type: ignore[no-any-return]

    @dg.job(name=f"copying_{database}")
    def copying() -> None:
        copy()

    given = {"fluss": fluss}
    assert dg.materialize([both], resources=given).success
    assert log_ids(connection, path) == list(range(5))
    assert copying.execute_in_process(resources=given).output_for_node("copy") == 5
    append(connection, path, orders(1))
    assert copying.execute_in_process(resources=given).output_for_node("copy") == 1
    store = FlussCheckpointStore(connection)
    assert store.head(f"dagster/job:copying_{database}/copy") is not None


def test_windows_in_a_graph_asset_and_in_a_job(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    """Each partition's metadata is its own, whichever kind of context the op asks for."""
    path = make_table(connection, TablePath(database, "orders"))
    days = dg.DailyPartitionsDefinition("2026-11-01")

    @dg.op
    def nothing() -> int:
        return 0

    def copying(name: str) -> dg.OpDefinition:
        @dg.op(name=name)
        def copy(
            context: dg.OpExecutionContext, fluss: FlussResource, before: int
        ) -> dg.MaterializeResult:
            sink = ParquetSink(tmp_path / name)
            return fluss.incremental(context, path, sink, checkpoint=f"{database}/{name}")

        return copy

    @dg.graph_asset(name="daily", partitions_def=days)
    def daily() -> dg.MaterializeResult:
        return copying("as_asset")(nothing())  # type: ignore[no-any-return]

    given = {"resources": {"fluss": fluss}, "partition_key": "2026-11-02"}
    result = dg.materialize([daily], **given)  # type: ignore[arg-type]
    [event] = result.asset_materializations_for_node("daily.as_asset")
    assert event.partition == "2026-11-02"
    assert event.metadata["fluss/rows"].value == 0

    @dg.op
    def told(context: dg.OpExecutionContext, fluss: FlussResource) -> str:
        sink = ParquetSink(tmp_path / "as_op")
        done = fluss.incremental(context, path, sink, checkpoint=f"{database}/as_op")
        return str((done.metadata or {})["fluss/receipt"])

    @dg.job(partitions_def=days)
    def by_day() -> None:
        told()

    done = by_day.execute_in_process(**given)  # type: ignore[arg-type]
    assert f"{database}/as_op/[" in done.output_for_node("told")
