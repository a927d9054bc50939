"""Incremental assets: each row once, through retries, other runs, wiped assets and backfills."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate import FlussCheckpointStore, FlussTableSink, ParquetSink
from fluss_orchestrate.core.checkpoints.report import list_checkpoints
from fluss_orchestrate.core.errors import CheckpointBindingError
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.contract import ContractSink
from fluss_orchestrate.dagster import (
    FlussResource,
    fluss_incremental,
    incremental_fluss_asset,
)
from fluss_orchestrate.dagster.incremental import TransformingSink
from tests.dagster_integration.tables import append, log_ids, make_table, orders
from tests.waiting import wait_until


def file_ids(folder: Path) -> list[int]:
    files = sorted(folder.glob("*.parquet"))
    return sorted(i for file in files for i in pq.read_table(file)["id"].to_pylist())


class ReadsItself:
    """As `SparkIcebergSink`: executors read the rows, and not the sink."""

    identity, form, exactly_once, reads_itself = "spark", None, True, True

    def write(self, plan: ScanPlan, read: Any) -> Any:
        raise AssertionError("nothing is written")


def test_rows_that_a_sink_reads_itself_cannot_be_changed() -> None:
    with pytest.raises(ConfigError, match="reads the rows of a plan by itself"):
        TransformingSink(ReadsItself(), lambda reader: reader)


def test_a_transforming_sink_is_bound_as_its_inner_sink(tmp_path: Path) -> None:
    good, bad = ParquetSink(tmp_path / "good"), ParquetSink(tmp_path / "bad")
    inner = ContractSink(good, ["id < 5"], "quarantine", bad)
    made = TransformingSink(inner, lambda reader: reader)
    assert made.contract == inner.contract
    assert TransformingSink(good, lambda reader: reader).contract is None


def events_of(result: dg.ExecuteInProcessResult, key: str) -> list[dict[str, Any]]:
    found = result.asset_materializations_for_node(key)
    return [{k: v.value for k, v in event.metadata.items()} for event in found]


def test_only_what_is_new_also_after_a_wipe(
    fluss: FlussResource,
    connection: FlussConnection,
    database: str,
    tmp_path: Path,
    instance: dg.DagsterInstance,
) -> None:
    path = make_table(connection, TablePath(database, "orders"))
    asset = incremental_fluss_asset(
        "increment", table=str(path), sink=ParquetSink(tmp_path), checkpoint=f"{database}/one"
    )
    given = {"resources": {"fluss": fluss}, "instance": instance}
    append(connection, path, orders(40))
    first = dg.materialize([asset], **given)
    [told] = events_of(first, "increment")
    assert told["fluss/rows"] == 40
    assert told["fluss/exactly_once"] is True
    run = instance.get_run_by_id(first.run_id)
    assert run is not None
    assert run.tags["fluss/plan/increment"] == told["fluss/plan_id"]
    assert events_of(dg.materialize([asset], **given), "increment")[0]["fluss/rows"] == 0
    append(connection, path, orders(5, first=40))
    instance.wipe_assets([dg.AssetKey("increment")])
    assert events_of(dg.materialize([asset], **given), "increment")[0]["fluss/rows"] == 5
    assert file_ids(tmp_path) == list(range(45))


def test_a_retry_replays_the_same_rows_while_the_table_grows(
    fluss: FlussResource, connection: FlussConnection, database: str
) -> None:
    source = make_table(connection, TablePath(database, "source"))
    target = make_table(connection, TablePath(database, "target"))
    append(connection, source, orders(30))
    tries: list[str] = []

    class Dying(FlussTableSink):
        def write(self, plan: ScanPlan, read: Any) -> Any:
            done = super().write(plan, read)
            tries.append(plan.plan_id)
            append(connection, source, orders(10, first=30 * len(tries)))
            if len(tries) < 3:
                raise RuntimeError("after the sink was written, before the commit")
            return done

    asset = incremental_fluss_asset(
        "copied",
        table=str(source),
        sink=lambda made: Dying(made, target),
        checkpoint=f"{database}/copy",
        retry_policy=dg.RetryPolicy(max_retries=2),
    )
    assert dg.materialize([asset], resources={"fluss": fluss}).success
    assert len(tries) == 3
    assert len(set(tries)) == 1
    assert log_ids(connection, target) == list(range(30))
    assert dg.materialize([asset], resources={"fluss": fluss}).success
    expected = [*range(30), *range(30, 40), *range(60, 70), *range(90, 100)]
    assert log_ids(connection, target) == expected


def test_another_run_finishes_what_one_left(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    path = make_table(connection, TablePath(database, "orders"))
    append(connection, path, orders(20))
    broken = [True]

    class Failing(ParquetSink):
        def write(self, plan: ScanPlan, read: Any) -> Any:
            if broken[0]:
                raise RuntimeError("no room")
            return super().write(plan, read)

    asset = incremental_fluss_asset(
        "left", table=str(path), sink=Failing(tmp_path), checkpoint=f"{database}/left"
    )
    failed = dg.materialize([asset], resources={"fluss": fluss}, raise_on_error=False)
    assert not failed.success
    broken[0] = False
    append(connection, path, orders(7, first=20))
    [told] = events_of(dg.materialize([asset], resources={"fluss": fluss}), "left")
    assert told["fluss/rows"] == 27
    assert len(told["fluss/adopted_plans"]) == 1
    assert file_ids(tmp_path) == list(range(27))
    head = FlussCheckpointStore(connection).head(f"{database}/left")
    assert head is not None
    assert head.state.pending is None


def test_the_decorator_changes_rows_or_takes_them(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    path = make_table(connection, TablePath(database, "orders"))
    append(connection, path, orders(20))
    taken: list[Any] = []

    @fluss_incremental(
        table=str(path), sink=ParquetSink(tmp_path), checkpoint=f"{database}/even", tags={"t": "x"}
    )
    def even(rows: pa.RecordBatchReader) -> pa.Table:
        """Only even ids."""
        table = rows.read_all()
        return table.filter(pc.equal(pc.bit_wise_and(table["id"], 1), 0))

    @fluss_incremental(table=str(path), checkpoint=f"{database}/taken")
    def take(rows: pa.RecordBatchReader, plan: ScanPlan) -> None:
        taken.append((plan.plan_id, rows.read_all()))

    result = dg.materialize([even, take], resources={"fluss": fluss})
    assert file_ids(tmp_path) == list(range(0, 20, 2))
    assert events_of(result, "even")[0]["fluss/rows"] == 10
    [told] = events_of(result, "take")
    assert told["fluss/exactly_once"] is False
    assert [plan for plan, _ in taken] == [told["fluss/plan_id"]]
    assert sorted(taken[0][1]["id"].to_pylist()) == list(range(20))
    spec = even.get_asset_spec()
    assert spec.description == "Only even ids."
    assert spec.metadata["fluss/source_table"] == str(path)


class Factor(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A resource of a user's own."""

    times: int


class Least(dg.Config):
    """A user's own config."""

    id: int = 0


def test_two_assets_cannot_share_a_checkpoint(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    """The rows would be shared out between their sinks, so that neither has all of them."""
    path = make_table(connection, TablePath(database, "orders"))
    append(connection, path, orders(10))
    taken: list[int] = []

    def asset(key: str) -> dg.AssetsDefinition:
        return incremental_fluss_asset(
            key, table=str(path), sink=ParquetSink(tmp_path / key), checkpoint=f"{database}/shared"
        )

    @fluss_incremental(table=str(path), checkpoint=f"{database}/shared")
    def third(rows: pa.RecordBatchReader) -> None:
        taken.extend(rows.read_all()["id"].to_pylist())

    assert dg.materialize([asset("first")], resources={"fluss": fluss}).success
    append(connection, path, orders(5, first=10))
    for other in (asset("second"), third):
        with pytest.raises(CheckpointBindingError, match=f"{database}/shared"):
            dg.materialize([other], resources={"fluss": fluss})
    assert dg.materialize([asset("first")], resources={"fluss": fluss}).success
    assert file_ids(tmp_path / "first") == list(range(15))
    assert not (tmp_path / "second").exists()
    assert taken == []


def test_a_decorated_function_gets_what_it_names(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    """Context, resources, config and inputs by name and type, in any order; the plan as before."""
    path = make_table(connection, TablePath(database, "orders"))
    append(connection, path, orders(6))
    taken: dict[str, Any] = {}

    @dg.asset
    def before() -> int:
        return 2

    @fluss_incremental(table=str(path), checkpoint=f"{database}/given")
    def given(
        context: dg.AssetExecutionContext,
        rows: pa.RecordBatchReader,
        factor: Factor,
        config: Least,
        before: int,
    ) -> None:
        wanted = [i for i in rows.read_all()["id"].to_pylist() if i >= config.id]
        taken["given"] = sorted(i * factor.times * before for i in wanted)
        taken["key"] = context.asset_key.to_user_string()

    @fluss_incremental(table=str(path), sink=ParquetSink(tmp_path), checkpoint=f"{database}/times")
    def times(new, plan, fluss: FlussResource, factor: dg.ResourceParam[Factor]) -> pa.Table:  # type: ignore[no-untyped-def]
        taken["plan"] = plan.plan_id
        assert fluss.table_info(path).table_path == path
        table = new.read_all()
        ids = pc.multiply(table["id"], factor.times)
        return table.set_column(0, table.schema.field(0), ids)

    result = dg.materialize(
        [before, given, times],
        resources={"fluss": fluss, "factor": Factor(times=3)},
        run_config={"ops": {"given": {"config": {"id": 4}}}},
    )
    assert taken["given"] == [24, 30]
    assert taken["key"] == "given"
    [told] = events_of(result, "times")
    assert taken["plan"] == told["fluss/plan_id"]
    assert file_ids(tmp_path) == [i * 3 for i in range(6)]


def test_a_function_that_cannot_be_given_rows() -> None:
    def nothing(context: dg.AssetExecutionContext, factor: Factor) -> None: ...

    def any_number(*rows: pa.RecordBatchReader) -> None: ...

    with pytest.raises(ConfigError, match="nothing: it has no parameter for the rows"):
        fluss_incremental(table="a.b")(nothing)
    with pytest.raises(ConfigError, match=r"any_number: parameter .* has no name"):
        fluss_incremental(table="a.b")(any_number)


def test_time_partitions_take_their_windows_however_they_are_run(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    """Rows are in today's partition by commit time; a range and its parts take each row once."""
    path = make_table(connection, TablePath(database, "orders"))
    now = datetime.now(UTC)
    hours = dg.TimeWindowPartitionsDefinition(
        cron_schedule="* * * * *",
        start=now - timedelta(minutes=3),
        fmt="%Y%m%d%H%M",
        end_offset=0,
    )
    append(connection, path, orders(25))
    asset = incremental_fluss_asset(
        "windows",
        table=str(path),
        sink=ParquetSink(tmp_path),
        checkpoint=f"{database}/windows",
        partitions_def=hours,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    keys = hours.get_partition_keys()
    one = dg.materialize([asset], resources={"fluss": fluss}, partition_key=keys[0])
    assert events_of(one, "windows")[0]["fluss/rows"] == 0
    span = {
        "dagster/asset_partition_range_start": keys[0],
        "dagster/asset_partition_range_end": keys[1],
    }
    for _ in range(2):
        result = dg.materialize([asset], resources={"fluss": fluss}, tags=span)
        found = result.asset_materializations_for_node("windows")
        assert [event.partition for event in found] == keys[:2]
    assert file_ids(tmp_path) == []
    kept = list_checkpoints(FlussCheckpointStore(connection))
    own = [line for line in kept if line.name.startswith(f"{database}/windows/")]
    assert [line.retired for line in own] == [True, True], "they would hold partitions for ever"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_rows_of_a_minute_that_has_passed(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    """A real minute: its partition alone, then a range over it, then it alone once more."""
    path = make_table(connection, TablePath(database, "orders"))
    minutes = dg.TimeWindowPartitionsDefinition(
        cron_schedule="* * * * *", start=datetime.now(UTC) - timedelta(minutes=1), fmt="%Y%m%d%H%M"
    )
    append(connection, path, orders(25))
    committed = datetime.now(UTC)
    asset = incremental_fluss_asset(
        "minutes",
        table=str(path),
        sink=ParquetSink(tmp_path),
        checkpoint=f"{database}/minutes",
        partitions_def=minutes,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    passed = committed.replace(second=0) + timedelta(seconds=75)
    wait_until("the end of the minute", lambda: datetime.now(UTC) >= passed, 90, pause_s=1)
    append(connection, path, orders(5, first=25))
    key = committed.strftime("%Y%m%d%H%M")
    keys = minutes.get_partition_keys()
    assert key in keys
    span = {
        "dagster/asset_partition_range_start": keys[0],
        "dagster/asset_partition_range_end": key,
    }
    resources = {"fluss": fluss}
    one = dg.materialize([asset], resources=resources, partition_key=key)
    assert events_of(one, "minutes")[0]["fluss/rows"] == 25
    assert dg.materialize([asset], resources=resources, tags=span).success
    assert dg.materialize([asset], resources=resources, partition_key=key).success
    assert file_ids(tmp_path) == list(range(25))
