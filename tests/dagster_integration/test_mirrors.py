"""Mirrors as assets: kept equal, told in metadata, checked; and the same in YAML."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate import SqlSink
from fluss_orchestrate.dagster import (
    FlussResource,
    build_fluss_mirror_check,
    fluss_mirror_asset,
)
from tests.dagster_integration.tables import make_table
from tests.dagster_integration.test_components import attributes, loaded

Query = Callable[[str], list[Any]]


@pytest.fixture
def customers(connection: FlussConnection, database: str) -> TablePath:
    """A key table with three rows."""
    path = make_table(connection, TablePath(database, "customers"), primary_keys=["id"])
    change(connection, path, {1: "a", 2: "b", 3: "c"})
    return path


def change(
    connection: FlussConnection, path: TablePath, rows: dict[int, str], deletes: Any = ()
) -> None:
    with connection.get_table(path).result().new_upsert().create_writer() as writer:
        for key, item in rows.items():
            writer.upsert({"id": key, "item": item})
        for key in deletes:
            writer.delete({"id": key})


@pytest.fixture
def query(tmp_path: Path) -> Query:
    def run(text: str) -> list[Any]:
        with closing(sqlite3.connect(tmp_path / "sink.db")) as opened, opened:
            return opened.execute(text).fetchall()

    return run


def told(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (event,) = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.materialization.metadata.items()}


def test_a_mirror_is_kept_equal_and_told(
    fluss: FlussResource,
    connection: FlussConnection,
    customers: TablePath,
    tmp_path: Path,
    query: Query,
    instance: dg.DagsterInstance,
) -> None:
    sink = SqlSink(f"sqlite:///{tmp_path / 'sink.db'}", "customers", form="mirror")
    name = f"{customers} copy"
    mirror = fluss_mirror_asset(
        "copy", table=str(customers), sink=sink, checkpoint=name, verify=True
    )
    assert mirror.specs_by_key[dg.AssetKey("copy")].kinds == {"fluss", "sql"}
    source = dg.AssetKey([customers.database_name, "customers"])
    assert mirror.asset_deps[dg.AssetKey("copy")] == {source}
    given: dict[str, Any] = {"resources": {"fluss": fluss}, "instance": instance}
    first = dg.materialize([mirror], **given)
    assert [e.passed for e in first.get_asset_check_evaluations()] == [True]
    metadata = told(first)
    assert (metadata["dagster/row_count"], metadata["fluss/rows"]) == (3, 3)
    assert (metadata["fluss/sink"], metadata["dagster/table_name"]) == ("sql", "customers")
    assert (metadata["fluss/replayed"], metadata["fluss/lag_offsets"]) == (False, 0)
    assert [c.name for c in metadata["dagster/column_schema"].columns] == ["id", "item"]
    assert metadata["fluss/offsets"].records
    lineage = metadata["dagster/column_lineage"].deps_by_column
    assert lineage["item"] == [dg.TableColumnDep(source, "item")]
    change(connection, customers, {2: "B", 4: "d"}, deletes=[1])
    assert told(dg.materialize([mirror], **given))["dagster/row_count"] == 3
    assert query("select id, item from customers order by id") == [(2, "B"), (3, "c"), (4, "d")]
    check = build_fluss_mirror_check(mirror, str(customers), sink, name, name="later")
    query("update customers set item = '' where id = 3")
    job = dg.Definitions(
        assets=[mirror],
        asset_checks=[check],
        resources=given["resources"],
        jobs=[dg.define_asset_job("checks", dg.AssetSelection.checks(check))],
    ).resolve_job_def("checks")
    (found,) = job.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert not found.passed
    assert '{"id": 3} has another item' in str(found.description)


def test_a_mirror_has_no_partitions(customers: TablePath) -> None:
    with pytest.raises(ConfigError, match="every change in order"):
        fluss_mirror_asset(
            "copy",
            table=str(customers),
            sink=lambda connection: SqlSink("sqlite://", "x", form="mirror"),
            partitions_def=dg.StaticPartitionsDefinition(["a"]),
        )


def test_a_mirror_in_yaml(
    fluss_address: str,
    connection: FlussConnection,
    customers: TablePath,
    tmp_path: Path,
    query: Query,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLUSS_TEST_SQL", f"sqlite:///{tmp_path / 'sink.db'}")
    database = customers.database_name
    mirror = {
        "table": str(customers),
        "key": f"{database}/copy",
        "sql": {"table": "customers", "url_env": "FLUSS_TEST_SQL", "form": "mirror"},
        "verify": True,
    }
    with loaded(attributes(fluss_address, database, increments=[mirror])) as (_, definitions):
        job = definitions.resolve_job_def(f"fluss_{database}_increments")
        first = job.execute_in_process()
        assert [e.passed for e in first.get_asset_check_evaluations()] == [True]
        change(connection, customers, {2: "B"}, deletes=[1])
        assert job.execute_in_process().success
    assert query("select id, item from customers order by id") == [(2, "B"), (3, "c")]
