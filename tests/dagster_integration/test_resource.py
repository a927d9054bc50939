"""`FlussResource`: what its methods do and tell, and that a repeated step leaves each row once."""

import os
import pickle
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate import ColumnSpec, FunctionSink, PartitionWindow, TableSpec
from fluss_orchestrate.dagster import FlussResource, close_connections
from fluss_orchestrate.dagster.metadata import receipt_of
from tests.dagster_integration.tables import log_ids, make_table, orders


def metadata_of(result: dg.ExecuteInProcessResult, node: str) -> dict[str, Any]:
    [event] = result.asset_materializations_for_node(node)
    return {key: value.value for key, value in event.metadata.items()}


def test_an_append_is_told_in_dagsters_own_keys(
    fluss: FlussResource, connection: FlussConnection, database: str
) -> None:
    path = make_table(connection, TablePath(database, "orders"))

    @dg.asset(name="orders")
    def load(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        return fluss.append(context, path, orders(50))

    result = dg.materialize([load], resources={"fluss": fluss})
    [event] = result.asset_materializations_for_node("orders")
    told = metadata_of(result, "orders")
    assert told["dagster/table_name"] == f"{database}.orders"
    assert told["dagster/storage_kind"] == "fluss"
    assert told["dagster/uri"] == f"fluss://tests/{database}/orders"
    assert told["dagster/row_count"] == 50 == told["fluss/rows"]
    assert [c.name for c in told["dagster/column_schema"].columns] == ["id", "item"]
    ranges = [record.data for record in told["fluss/offsets"].records]
    assert sum(one["stop"] - one["start"] for one in ranges) == 50
    assert told["fluss/replayed"] is False
    receipt = receipt_of(event.metadata)
    assert receipt is not None
    assert receipt.rows == 50
    assert event.tags is not None
    assert event.tags["dagster/data_version"]
    assert log_ids(connection, path) == list(range(50))


def test_materialisations_link_to_the_console(
    fluss_address: str, connection: FlussConnection, database: str
) -> None:
    path = make_table(connection, TablePath(database, "orders"))
    fluss = FlussResource(
        bootstrap_servers=fluss_address, cluster_alias="tests", console_url="https://fluss.example/"
    )

    @dg.asset
    def loaded(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        return fluss.append(context, path, orders(5))

    @dg.asset(deps=[loaded])
    def copied(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        sink = FunctionSink(lambda reader: reader.read_all())
        return fluss.incremental(context, path, sink, checkpoint=f"{database}/a b")

    result = dg.materialize([loaded, copied], resources={"fluss": fluss})
    assert metadata_of(result, "loaded")["fluss/console"] == (
        f"https://fluss.example/table?name={database}.orders"
    )
    assert metadata_of(result, "copied")["fluss/console"] == (
        f"https://fluss.example/checkpoint?name={database}%2Fa+b"
    )


def test_a_retried_step_appends_once(
    fluss: FlussResource, connection: FlussConnection, database: str
) -> None:
    path = make_table(connection, TablePath(database, "orders"))
    tries: list[int] = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def load(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        done = fluss.append(context, path, orders(30))
        fluss.append(context, path, orders(5, first=30), part="more")
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("after the rows were written")
        return done

    assert dg.materialize([load], resources={"fluss": fluss}).success
    assert len(tries) == 3
    assert log_ids(connection, path) == list(range(35))
    # Another run is other work.
    assert dg.materialize([load], resources={"fluss": fluss}).success
    assert len(log_ids(connection, path)) == 70


def test_a_retry_with_other_rows_fails_for_good(
    fluss: FlussResource, connection: FlussConnection, database: str
) -> None:
    path = make_table(connection, TablePath(database, "orders"))
    tries: list[int] = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=5))
    def load(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        tries.append(1)
        done = fluss.append(context, path, orders(30, first=len(tries)))
        if len(tries) == 1:
            raise RuntimeError("again")
        return done

    result = dg.materialize([load], resources={"fluss": fluss}, raise_on_error=False)
    assert not result.success
    assert len(tries) == 2
    [failed] = result.get_step_failure_events()
    assert "A new run has an id of its own" in str(failed.step_failure_data.error)
    assert log_ids(connection, path) == list(range(1, 31))


def test_upserts_deletes_and_wrong_kinds(
    fluss: FlussResource, connection: FlussConnection, database: str
) -> None:
    keyed = make_table(connection, TablePath(database, "keyed"), primary_keys=["id"])
    log = make_table(connection, TablePath(database, "log"))
    changes = orders(10).append_column("_change_type", pa.array(["+U"] * 9 + ["-D"]))

    @dg.asset
    def load(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        fluss.upsert(context, keyed, orders(10), part="first")
        with pytest.raises(ConfigError, match="has primary key: use upsert"):
            fluss.append(context, keyed, orders(1))
        with pytest.raises(ConfigError, match="has no primary key: use append"):
            fluss.upsert(context, log, orders(1))
        return fluss.upsert(context, keyed, changes)

    told = metadata_of(dg.materialize([load], resources={"fluss": fluss}), "load")
    assert told["dagster/row_count"] == 9
    rows = fluss.read_table(keyed, columns=["id"]).read_all()
    assert sorted(rows["id"].to_pylist()) == list(range(9))


def test_tables_and_partitions_on_time(
    fluss: FlussResource, connection: FlussConnection, database: str
) -> None:
    spec = TableSpec(
        f"{database}.events",
        (ColumnSpec("id", "bigint"), ColumnSpec("day", "string")),
        partition_keys=("day",),
    )

    @dg.asset
    def tables(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        return fluss.provision(context, [spec])

    @dg.asset(deps=[tables])
    def window(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        return fluss.partition_window(context, PartitionWindow(spec.table, "day", ahead=2))

    result = dg.materialize([tables, window], resources={"fluss": fluss})
    assert metadata_of(result, "tables")["fluss/changes"] == [f"create table {spec.table}"]
    assert metadata_of(result, "window")["fluss/partitions_created"] == 3
    again = dg.materialize([tables, window], resources={"fluss": fluss})
    assert metadata_of(again, "tables")["fluss/changes"] == ["nothing to change"]
    assert metadata_of(again, "window")["fluss/partitions_created"] == 0
    found = connection.get_admin().result().list_partition_infos(spec.path).result()
    assert datetime.now(UTC).strftime("%Y%m%d") in {p.partition_name for p in found}


def test_connections_are_lazy_and_one_per_process(tmp_path: Any) -> None:
    folder = tmp_path / "not-made-yet"
    one = FlussResource(bootstrap_servers=f"embedded:{folder}")
    assert not folder.exists()
    two = FlussResource(bootstrap_servers=f"embedded:{folder}")
    assert one.connection is two.connection
    assert folder.exists()
    with one.get_connection() as made:
        assert made is one.connection
    assert one.connection is made
    made.close()
    assert one.connection is not made
    child = os.fork()
    if child == 0:
        listed = one.connection.get_admin().result().list_databases().result()
        os._exit(0 if isinstance(listed, list) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_secrets_are_nowhere_to_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUSS_TEST_SECRET", "wolpertinger")
    resource = FlussResource(
        bootstrap_servers="localhost:1", sasl_username="u", sasl_password="wolpertinger"
    )
    assert "wolpertinger" not in repr(resource)
    assert "wolpertinger" not in str(resource)
    named = FlussResource(
        bootstrap_servers="localhost:1",
        sasl_username="u",
        sasl_password=dg.EnvVar("FLUSS_TEST_SECRET"),
    )
    assert b"wolpertinger" not in pickle.dumps(repr(named))
    settings = named.process_config_and_initialize().settings()
    assert settings["security.sasl.password"] == "wolpertinger"
    assert settings["security.protocol"] == "sasl"
    careless = FlussResource(
        bootstrap_servers="localhost:1", client_options={"security.sasl.password": "wolpertinger"}
    )
    with pytest.raises(ConfigError, match="does not belong in client_options") as caught:
        careless.settings()
    assert "wolpertinger" not in str(caught.value)


def test_sasl_reaches_a_real_cluster(plain_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    info = plain_cluster.info
    monkeypatch.setenv("FLUSS_TEST_SECRET", info.users["admin"])
    resource = FlussResource(
        bootstrap_servers=info.sasl_bootstrap_servers,
        sasl_username="admin",
        sasl_password=dg.EnvVar("FLUSS_TEST_SECRET"),
    ).process_config_and_initialize()
    assert "fluss" in resource.connection.get_admin().result().list_databases().result()
    assert close_connections() >= 1
