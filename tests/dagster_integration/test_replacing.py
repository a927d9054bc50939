"""Materialising a partition again replaces it, guarded by those who read it."""

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate import FlussCheckpointStore, FunctionSink, IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.dagster import FlussIOManager, FlussResource, fluss_time_partitions
from tests.dagster_integration.tables import log_ids, make_table

DAYS = fluss_time_partitions("day", "20261101")
DAY = "20261103"


@pytest.fixture
def resources(fluss: FlussResource) -> dict[str, Any]:
    return {"io_manager": FlussIOManager(fluss=fluss)}


def daily(
    database: str, ids: list[list[int]], retries: int = 0, **metadata: Any
) -> dg.AssetsDefinition:
    """An asset whose n-th materialisation has the n-th ids."""

    @dg.asset(
        key=[database, "daily"],
        partitions_def=DAYS,
        metadata={"partition_expr": "day", **metadata},
        retry_policy=dg.RetryPolicy(max_retries=retries) if retries else None,
    )
    def daily(context: dg.AssetExecutionContext) -> pa.Table:
        rows = ids.pop(0)
        return pa.table(
            {"id": pa.array(rows, pa.int64()), "day": [context.partition_key] * len(rows)}
        )

    return daily


def test_a_log_table_by_default_and_append_by_choice(
    database: str, resources: dict[str, Any], connection: FlussConnection
) -> None:
    path = TablePath(database, "daily")
    asset = daily(database, [[1, 2, 3], [4], [2, 5]])
    for day, held in ((DAY, [1, 2, 3]), ("20261104", [1, 2, 3, 4]), (DAY, [2, 4, 5])):
        done = dg.materialize([asset], resources=resources, partition_key=day)
        assert log_ids(connection, path) == held
    [event] = done.asset_materializations_for_node(f"{database}__daily")
    assert event.metadata["fluss/write_mode"].value == "overwrite_partition"
    adding = daily(database, [[6]], write_mode="append")
    assert dg.materialize([adding], resources=resources, partition_key=DAY).success
    assert log_ids(connection, path) == [2, 4, 5, 6]


def test_rows_that_nobody_has_read_stay(
    database: str, resources: dict[str, Any], connection: FlussConnection
) -> None:
    path = TablePath(database, "daily")
    asset = daily(database, [[1, 2], [3], [4]])
    assert dg.materialize([asset], resources=resources, partition_key=DAY).success
    scan = IncrementalScan(connection, path, f"{database}/reader", FlussCheckpointStore(connection))
    seen: list[int] = []
    sink = FunctionSink(lambda rows: seen.extend(rows.read_all()["id"].to_pylist()))
    assert run_increment(scan, sink, "first").rows == 2
    assert dg.materialize([asset], resources=resources, partition_key=DAY).success
    failed = dg.materialize([asset], resources=resources, partition_key=DAY, raise_on_error=False)
    assert not failed.success
    [failure] = failed.get_step_failure_events()
    said = failure.step_failure_data.error.message
    assert f"checkpoint '{database}/reader' has read bucket" in said
    assert "write_mode 'append'" in said
    assert "drop_unread: true" in said
    assert log_ids(connection, path) == [3], "nothing was dropped"
    run_increment(scan, sink, "second")
    assert sorted(seen) == [1, 2, 3], "the new partition is read from its first row on"
    forced = daily(database, [[5], [6]], drop_unread=True)
    for _ in range(2):
        assert dg.materialize([forced], resources=resources, partition_key=DAY).success
    assert log_ids(connection, path) == [6]


def test_a_retry_goes_on_in_the_new_partition(
    database: str, fluss: FlussResource, connection: FlussConnection
) -> None:
    """With the same rows and with others; a reader in between keeps nothing from happening."""
    tries: list[int] = []

    class Failing(FlussIOManager):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            super().handle_output(context, obj)
            tries.append(1)
            if len(tries) < 4:
                raise RuntimeError("after the rows were written")

    path = TablePath(database, "daily")
    asset = daily(database, [[1], [1], [2, 3], [2, 3]], retries=3)
    failing = {"io_manager": Failing(fluss=fluss)}
    assert dg.materialize([asset], resources=failing, partition_key=DAY).success
    assert len(tries) == 4
    assert log_ids(connection, path) == [2, 3]


@pytest.mark.parametrize("apart", [True, False])
def test_a_key_table_by_its_keys(
    apart: bool, database: str, fluss: FlussResource, connection: FlussConnection
) -> None:
    """Rows of the partition that do not come again are deleted, and the changelog says so."""
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("note", pa.string())])
    options: dict[str, Any] = {"partition_keys": ["day"]} if apart else {}
    path = make_table(
        connection,
        TablePath(database, "daily"),
        schema,
        primary_keys=["id", "day"] if apart else ["id"],
        **options,
    )
    rows: list[list[int]] = [[1, 2, 3], [10, 11], [3, 4]]

    @dg.asset(key=[database, "daily"], partitions_def=DAYS, metadata={"partition_expr": "day"})
    def keyed(context: dg.AssetExecutionContext) -> pa.Table:
        ids = rows.pop(0)
        day = [context.partition_key] * len(ids)
        return pa.table({"id": ids, "day": day, "note": ["x"] * len(ids)}, schema)

    given = {"io_manager": FlussIOManager(fluss=fluss)}
    for day in (DAY, "20261104", DAY):
        done = dg.materialize([keyed], resources=given, partition_key=day)
    [event] = done.asset_materializations_for_node(f"{database}__daily")
    assert event.metadata["fluss/rows_deleted"].value == 2
    held = fluss.read_table(path).read_all()
    assert sorted(held["id"].to_pylist()) == [3, 4, 10, 11]


def test_a_log_without_partitions_says_what_to_do(
    database: str, resources: dict[str, Any], connection: FlussConnection
) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    path = make_table(connection, TablePath(database, "daily"), schema)
    asset = daily(database, [[1], [2]])
    assert dg.materialize([asset], resources=resources, partition_key=DAY).success
    with pytest.raises(ConfigError, match=r"holds 1 rows of 20261103.*write_mode 'append'"):
        dg.materialize([asset], resources=resources, partition_key=DAY)
    assert log_ids(connection, path) == [1]
