"""Components, by Dagster's own test kit: state, translation, scaffolding, and no call at load."""

import asyncio
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from dagster.components.testing.test_cases import TestTranslation

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError, CorruptDataError
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.sinks.registry import declaration, declarations
from fluss_orchestrate.dagster import FlussResource
from fluss_orchestrate.dagster.components import FlussConnectionComponent, FlussDatabaseComponent
from fluss_orchestrate.dagster.components.connection import ConnectionAttributes
from fluss_orchestrate.dagster.components.increments import IncrementAttributes, sink_model
from fluss_orchestrate.dagster.tables import read_state
from tests.dagster_integration.tables import append, log_ids, make_table, orders

TYPE = "fluss_orchestrate.dagster.components.FlussDatabaseComponent"


def attributes(address: str, database: str, **more: Any) -> dict[str, Any]:
    connection = {"bootstrap_servers": address, "cluster_alias": "tests"}
    return {"connection": connection, "databases": [database], **more}


@contextmanager
def loaded(given: dict[str, Any]) -> Iterator[tuple[Any, dg.Definitions]]:
    """The component of a YAML file, its state written as `dg utils refresh-defs-state` does."""
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=FlussDatabaseComponent,
            defs_yaml_contents={"type": TYPE, "attributes": given},
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, _):
            asyncio.run(component.refresh_state(sandbox.project_root))
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, definitions):
            yield component, definitions


@pytest.fixture
def tables(connection: FlussConnection, database: str) -> str:
    make_table(connection, TablePath(database, "orders"))
    make_table(connection, TablePath(database, "customers"), primary_keys=["id"])
    make_table(connection, TablePath(database, "hidden"))
    parts = pa.schema([("id", pa.int64()), ("area", pa.string())])
    make_table(connection, TablePath(database, "places"), parts, partition_keys=["area"])
    days = pa.schema([("id", pa.int64()), ("day", pa.string())])
    automatic = {
        "table.auto-partition.enabled": "true",
        "table.auto-partition.time-unit": "DAY",
        "table.auto-partition.time-zone": "UTC",
    }
    make_table(
        connection,
        TablePath(database, "daily"),
        days,
        partition_keys=["day"],
        properties=automatic,
    )
    return database


def test_tables_become_assets_jobs_and_sensors(
    fluss: FlussResource,
    fluss_address: str,
    connection: FlussConnection,
    tables: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    increment = {
        "table": f"{tables}.orders",
        "key": f"{tables}/orders_files",
        "parquet": str(tmp_path / "files"),
        "min_offsets": 5,
    }
    others = [
        {"table": f"{tables}.orders", "key": f"{tables}/orders_{kind}", kind: sink}
        for kind, sink in (
            ("iceberg", {"table": "a.orders", **catalog_attributes(tmp_path, monkeypatch)}),
            ("sql", {"table": "orders", "url_env": "FLUSS_TEST_SQL"}),
            ("fluss_table", f"{tables}.hidden"),
        )
    ]
    monkeypatch.setenv("FLUSS_TEST_SQL", f"sqlite:///{tmp_path / 'sink.db'}")
    given = attributes(
        fluss_address,
        tables,
        exclude=["hid*"],
        partitions_start="20261101",
        increments=[increment, *others],
    )
    with loaded(given) as (_, definitions):
        specs = {spec.key.path[-1]: spec for spec in definitions.resolve_all_asset_specs()}
        made = {"orders_files", "orders_iceberg", "orders_sql", "orders_fluss_table"}
        assert set(specs) == {"orders", "customers", "places", "daily", *made}
        told = specs["customers"].metadata
        assert told["dagster/table_name"] == f"{tables}.customers"
        assert told["dagster/uri"] == f"fluss://tests/{tables}/customers"
        columns = told["dagster/column_schema"]
        assert [c.name for c in getattr(columns, "schema", columns).columns] == ["id", "item"]
        assert "fluss" in specs["orders"].kinds
        assert isinstance(specs["places"].partitions_def, dg.DynamicPartitionsDefinition)
        days = specs["daily"].partitions_def
        assert isinstance(days, dg.TimeWindowPartitionsDefinition)
        assert days.get_partition_keys()[:2] == ["20261101", "20261102"]
        repository = definitions.get_repository_def()
        names = {sensor.name for sensor in repository.sensor_defs}
        places = f"fluss_partitions_{tables}_places"
        assert {places, f"fluss_offsets_{tables}_orders_files"} <= names
        job = definitions.resolve_job_def(f"fluss_{tables}_increments")
        append(connection, TablePath(tables, "orders"), orders(10))
        for _ in range(2):
            assert job.execute_in_process().success
    assert sorted(ds.dataset(tmp_path / "files").to_table()["id"].to_pylist()) == list(range(10))
    catalog = open_catalog(catalog_properties(tmp_path))
    held = catalog.load_table("a.orders").scan().to_arrow()
    assert sorted(held["id"].to_pylist()) == list(range(10))
    with sqlite3.connect(tmp_path / "sink.db") as database:
        found = database.execute("SELECT id FROM orders ORDER BY id").fetchall()
    database.close()
    assert [row for (row,) in found] == list(range(10))
    assert log_ids(connection, TablePath(tables, "hidden")) == list(range(10))


def catalog_properties(folder: Path) -> dict[str, str]:
    uri = f"sqlite:///{folder / 'catalog.db'}"
    return {"name": "a", "type": "sql", "uri": uri, "warehouse": f"file://{folder}"}


def catalog_attributes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The catalog as YAML has it: its address comes from the environment."""
    properties = catalog_properties(folder)
    monkeypatch.setenv("FLUSS_TEST_CATALOG", properties.pop("uri"))
    return {"catalog": properties, "catalog_env": {"uri": "FLUSS_TEST_CATALOG"}}


def test_every_field_of_a_sink_can_be_given(
    fluss_address: str, connection: FlussConnection, tables: str, tmp_path: Path
) -> None:
    """Files with another codec, and a table of a cluster that is named in YAML."""
    files = {"path": str(tmp_path / "files"), "compression": "gzip"}
    copy = {"table": f"{tables}.hidden", "connection": {"bootstrap_servers": fluss_address}}
    increments = [
        {"table": f"{tables}.orders", "key": f"{tables}/more_{kind}", kind: sink}
        for kind, sink in (("parquet", files), ("fluss_table", copy))
    ]
    with loaded(attributes(fluss_address, tables, increments=increments)) as (_, definitions):
        job = definitions.resolve_job_def(f"fluss_{tables}_increments")
        append(connection, TablePath(tables, "orders"), orders(10))
        assert job.execute_in_process().success
    (file, *_) = (tmp_path / "files").glob("*.parquet")
    assert pq.read_metadata(file).row_group(0).column(0).compression == "GZIP"
    assert log_ids(connection, TablePath(tables, "hidden")) == list(range(10))


def test_increments_take_what_scans_and_assets_take(
    fluss: FlussResource,
    fluss_address: str,
    connection: FlussConnection,
    tables: str,
    tmp_path: Path,
    instance: dg.DagsterInstance,
) -> None:
    """Metadata columns, scan options, checks and partitions; a copy whose table does not exist."""
    increments = [
        {
            "table": f"{tables}.orders",
            "key": f"{tables}/offsets",
            "parquet": str(tmp_path / "offsets"),
            "columns": ["id"],
            "metadata_columns": ["_offset"],
            "scan_options": {"start": "latest"},
            "checks": {"max_offsets": 0},
        },
        {"table": f"{tables}.customers", "key": f"{tables}/copied", "fluss_table": f"{tables}.new"}
        | {"metadata_columns": ["_change_type"]},
        {
            "table": f"{tables}.orders",
            "key": f"{tables}/monthly",
            "parquet": str(tmp_path / "monthly"),
            "partitions": {"unit": "month", "start": 202601},
        },
    ]
    given = attributes(
        fluss_address,
        tables,
        include=["orders", "customers"],
        checks={"min_rows": 1, "interval_s": 90},
        increments=increments,
        translation={"owners": ["team:shop"]},
    )
    with loaded(given) as (_, definitions):
        specs = {spec.key.path[-1]: spec for spec in definitions.resolve_all_asset_specs()}
        assert isinstance(specs["monthly"].partitions_def, dg.TimeWindowPartitionsDefinition)
        assert [d.asset_key for d in specs["monthly"].deps] == [dg.AssetKey([tables, "orders"])]
        assert {s.group_name for s in specs.values()} == {tables}
        assert {tuple(s.owners) for s in specs.values()} == {("team:shop",)}
        assert {"fluss", "fluss_table"} <= specs["copied"].kinds
        [checking] = [s for s in definitions.sensors or () if s.name.endswith("_checks")]
        assert checking.minimum_interval_seconds == 90
        names = {s.name for s in definitions.sensors or ()}
        assert f"fluss_{tables}_tables" in names
        job = definitions.resolve_job_def(f"fluss_{tables}_increments")
        keys = [dg.AssetKey([tables, name]) for name in ("offsets", "copied")]
        run = {"asset_selection": keys, "instance": instance, "raise_on_error": False}
        assert job.execute_in_process(**run).success
        append(connection, TablePath(tables, "orders"), orders(4))
        path = TablePath(tables, "customers")
        with connection.get_table(path).result().new_upsert().create_writer() as writer:
            writer.write_arrow(orders(3))
        done = job.execute_in_process(**run)
        graph = definitions.resolve_asset_graph()
        checks = {f"{k.asset_key.path[-1]}:{k.name}" for k in graph.asset_check_keys}
    assert checks == {"offsets:fluss_lag"} | {
        f"{table}:{name}"
        for table in ("orders", "customers")
        for name in ("fluss_schema_drift", "fluss_row_count")
    }
    assert [e.passed for e in done.get_asset_check_evaluations()] == [True]
    held = ds.dataset(tmp_path / "offsets").to_table()
    assert (held.num_rows, sorted(held.column_names)) == (4, ["_offset", "id"])
    new = fluss.table_info(f"{tables}.new")
    assert new.get_primary_keys() == ["id"]
    assert sorted(fluss.read_table(f"{tables}.new").read_all()["id"].to_pylist()) == [0, 1, 2]


def test_a_scan_option_that_is_none() -> None:
    given = IncrementAttributes(table="a.b", key="c", parquet="d", scan_options={"strat": "latest"})
    with pytest.raises(ConfigError, match="no option 'strat': did you mean 'start'"):
        given.asset("fluss")


def test_components_share_a_resource_and_a_cluster_may_be_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two databases and a connection of one cluster; then the project is loaded without it."""
    where = tmp_path / "fluss"
    connection = FlussResource(bootstrap_servers=f"embedded:{where}").connection
    for database in ("one", "two"):
        make_table(connection, TablePath(database, "orders"))
    reach = {"bootstrap_servers": "{{ env.FLUSS_TEST_ADDRESS }}", "cluster_alias": "shared"}
    kinds = (
        (FlussDatabaseComponent, {"connection": reach, "databases": ["one"]}),
        (FlussDatabaseComponent, {"connection": reach, "databases": ["two"]}),
        (FlussConnectionComponent, reach),
    )
    found = []
    with create_defs_folder_sandbox() as sandbox:
        for number, (kind, given) in enumerate(kinds):
            sandbox.scaffold_component(
                component_cls=kind,
                defs_path=f"part_{number}",
                defs_yaml_contents={
                    "type": f"fluss_orchestrate.dagster.components.{kind.__name__}",
                    "attributes": given,
                },
            )
        monkeypatch.setenv("DAGSTER_IS_DEV_CLI", "1")
        for address in (f"embedded:{where}", "127.0.0.1:1"):
            monkeypatch.setenv("FLUSS_TEST_ADDRESS", address)
            with sandbox.build_all_defs() as definitions:
                specs = definitions.resolve_all_asset_specs()
                found.append(sorted(spec.key.to_user_string() for spec in specs))
    assert found == [["one/orders", "two/orders"]] * 2


def test_the_schema_describes_every_key() -> None:
    schema = IncrementAttributes.model().model_json_schema()
    for sink in declarations().values():
        assert schema["properties"][sink.name]["description"] == sink.summary
        keys = schema["$defs"][f"{sink.camel_name}AttributesModel"]["properties"]
        assert all(key["description"] for key in keys.values())


@pytest.mark.parametrize(
    ("sinks", "said"),
    [
        ({}, "exactly one of"),
        ({"parquet": "here", "fluss_table": "a.b"}, "exactly one of"),
        ({"iceberg": {"table": "a.b", "catalog": {"s3.secret-access-key": "x"}}}, "catalog_env"),
    ],
)
def test_sinks_that_cannot_be_meant(sinks: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        IncrementAttributes(table="a.b", key="c", **sinks).asset("fluss")


def test_a_missing_variable_is_named(connection: FlussConnection) -> None:
    with pytest.raises(ConfigError, match="FLUSS_TEST_NOWHERE is not set"):
        sink_model(declaration("sql"))(table="t", url_env="FLUSS_TEST_NOWHERE").open(connection)


def test_loading_definitions_calls_nobody(
    fluss_address: str, tables: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection = ConnectionAttributes(bootstrap_servers=fluss_address)
    component: Any = FlussDatabaseComponent(connection, [tables])
    state = tmp_path / "state.json"
    component.write_state_to_path(state)

    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was opened while definitions were loaded")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr("fluss_orchestrate.dagster.resource.shared_connection", refuse)
    monkeypatch.setattr("fluss_orchestrate.dagster.resource.shared_connection", refuse)
    again = component.build_defs_from_state(None, state)
    assert len(list(again.resolve_all_asset_specs())) == 5
    assert list(component.build_defs_from_state(None, None).resolve_all_asset_specs()) == []
    state.write_text("{}")
    with pytest.raises(CorruptDataError, match="refresh-defs-state"):
        read_state(state)


def test_a_connection_has_no_place_for_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUSS_TEST_SECRET", "wolpertinger")
    given = {
        "bootstrap_servers": "localhost:1",
        "sasl_username": "u",
        "sasl_password_env": "FLUSS_TEST_SECRET",
        "resource_key": "warehouse",
    }
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=FlussConnectionComponent,
            defs_yaml_contents={
                "type": "fluss_orchestrate.dagster.components.FlussConnectionComponent",
                "attributes": given,
            },
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, definitions):
            assert isinstance(component, FlussConnectionComponent)
            assert definitions.resources is not None
            resource: Any = definitions.resources["warehouse"]
            assert "wolpertinger" not in repr(component) + repr(resource)
            made = resource.process_config_and_initialize()
            assert made.settings()["security.sasl.password"] == "wolpertinger"


def test_scaffolding_writes_what_the_page_shows() -> None:
    """`dg scaffold defs …FlussDatabaseComponent shop` without questions, and with an address."""
    page = (Path(__file__).parents[2] / "docs" / "dagster.md").read_text()
    shown = page.split("```yaml\n", 1)[1].split("```", 1)[0]
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=FlussDatabaseComponent, defs_path="shop", scaffold_params={}
        )
        written, shown = (yaml.safe_load(t) for t in ((path / "defs.yaml").read_text(), shown))
        assert written["attributes"] == shown["attributes"]
        assert shown["type"] in page.split("`dg scaffold defs ", 1)[1].split(" ", 1)[0]
        path = sandbox.scaffold_component(
            component_cls=FlussDatabaseComponent,
            scaffold_params={"bootstrap_servers": "localhost:9123", "database": "sales"},
        )
        written = yaml.safe_load((path / "defs.yaml").read_text())
    assert written["type"].endswith(".FlussDatabaseComponent")
    assert written["attributes"] == {
        "connection": {"bootstrap_servers": "localhost:9123"},
        "databases": ["sales"],
    }


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An embedded Fluss with one table."""
    address = f"embedded:{tmp_path_factory.mktemp('translation')}"
    connection = FlussResource(bootstrap_servers=address).connection
    make_table(connection, TablePath("shop", "orders"))
    return address


class TestTranslationOfTables(TestTranslation):
    """Every attribute that YAML may set, as Dagster's kit checks it."""

    def test_translation(
        self, attributes: Any, assertion: Any, key_modifier: Any, shop: str
    ) -> None:
        body = {
            "connection": {"bootstrap_servers": shop},
            "databases": ["shop"],
            "translation": attributes,
        }
        with loaded(body) as (_, definitions):
            key = dg.AssetKey(["shop", "orders"])
            wanted = key_modifier(key) if key_modifier else key
            found = {spec.key: spec for spec in definitions.resolve_all_asset_specs()}
            assert assertion(found[wanted])
