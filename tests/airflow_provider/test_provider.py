"""The provider as Airflow sees it: discovery, connection, assets, what importing costs."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fluss_orchestrate.core.identity import parse_table_uri, table_uri

pytestmark = pytest.mark.usefixtures("airflow_home")
ROOT = Path(__file__).parents[2]
MODULES_MAX, OTHER_MODULES_MAX = 45, 10
OPERATOR_MODULES_MAX = 25


def test_airflow_lists_the_provider_and_all_its_parts() -> None:
    from airflow.providers_manager import ProvidersManager
    from airflow.sdk import task

    try:
        from airflow.sdk import providers_manager_runtime
    except ImportError:  # before 3.2
        hook = ProvidersManager().hooks["fluss"]
    else:
        hook = providers_manager_runtime.ProvidersManagerTaskRuntime().hooks["fluss"]

    from fluss_orchestrate.airflow.provider_info import get_provider_info

    manager = ProvidersManager()
    assert manager.providers["fluss-orchestrate"].data["name"] == "Apache Fluss"
    assert hook is not None
    assert (hook.hook_name, hook.connection_testable) == ("Apache Fluss", True)
    assert "fluss_orchestrate.airflow.queues.FlussQueueProvider" in manager.queue_class_names
    assert "fluss_orchestrate.airflow.links.LakeTableLink" in manager.extra_links_class_names
    assert callable(task.fluss_scan)
    info = get_provider_info()
    uris = info["asset-uris"][0]
    for path in (uris["handler"], uris["factory"], uris["to_openlineage_converter"]):
        assert callable(pkgutil.resolve_name(path))
    import fluss_orchestrate.airflow as provider

    for name in provider.__all__:
        assert getattr(provider, name).__name__ == name


@pytest.mark.parametrize("folder", ["operators", "triggers"])
def test_names_are_also_in_the_folder_of_their_module(folder: str) -> None:
    import fluss_orchestrate.airflow as provider

    package = importlib.import_module(f"fluss_orchestrate.airflow.{folder}")
    inside = 0
    for name in provider.__all__:
        public = getattr(provider, name)
        if public.__module__.startswith(f"{package.__name__}."):
            inside += 1
            assert getattr(package, name) is public
        else:
            with pytest.raises(AttributeError, match=name):
                getattr(package, name)
    assert inside > 2


def test_sensors_are_also_in_their_module() -> None:
    import fluss_orchestrate.airflow as provider

    module = importlib.import_module("fluss_orchestrate.airflow.sensors")
    named = [name for name in provider.__all__ if name.endswith("Sensor")]
    assert len(named) == 4
    for name in named:
        assert getattr(module, name) is getattr(provider, name)


def test_info_fits_airflows_own_schema() -> None:
    import airflow
    import jsonschema

    from fluss_orchestrate.airflow.provider_info import get_provider_info

    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_the_connection_form_has_fields_with_labels() -> None:
    """As the page of connections gets them, on every release."""
    from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService

    [form] = [f for f in HookMetaService.hook_meta_data() if f.connection_type == "fluss"]
    assert form.standard_fields is not None
    assert form.standard_fields.host is not None
    assert form.standard_fields.host.title == "Bootstrap servers"
    assert form.standard_fields.port is not None
    assert form.standard_fields.port.hidden
    assert form.extra_fields is not None
    fields = {name: dict(field) for name, field in form.extra_fields.items()}
    assert list(fields) == [
        *("cluster_alias", "security_protocol", "table_url", "lake_url", "client_options")
    ]
    assert {field["value"] for field in fields.values()} == {""}, "a form shows no null"
    assert fields["security_protocol"]["schema"]["enum"] == ["", "PLAINTEXT", "SASL"]
    assert "Never change it" in str(fields["cluster_alias"])


def test_assets_have_one_name_and_one_uri() -> None:
    from airflow.sdk import Asset

    from fluss_orchestrate.airflow import fluss_table_asset
    from fluss_orchestrate.airflow.assets import split_uri

    asset = fluss_table_asset("sales.orders", cluster_alias="lake")
    assert (asset.name, asset.uri) == ("fluss://lake/sales/orders",) * 2
    assert Asset("other", "FLUSS://lake/sales/orders/").uri == asset.uri
    odd = fluss_table_asset("sales.öl & gas", cluster_alias="lake")
    cluster, path = parse_table_uri(odd.uri)
    assert odd.uri == table_uri(cluster, path)
    assert split_uri(odd.uri) == ("lake", "sales.öl & gas")
    for wrong in ("fluss://lake/sales", "fluss://la ke/a/b", "fluss://lake/a/b?c=d"):
        with pytest.raises(ValueError, match=r"fluss|alias"):
            Asset("wrong", wrong)
    with pytest.raises(ValueError, match=r"database\.table"):
        fluss_table_asset("orders")


def test_hook_connects_and_keeps_one_client(conn_id: str, fluss_kind: str) -> None:
    from fluss_orchestrate.airflow import FlussHook

    hook = FlussHook(conn_id)
    worked, said = hook.test_connection()
    assert worked, said
    client = hook.get_conn()
    assert FlussHook(conn_id).get_conn() is client
    assert asyncio.run(hook.aget_client()) is client
    if fluss_kind == "cluster":
        assert hook.get_config().security_protocol == "sasl"
    client.close()
    again = hook.get_conn()
    assert again is not client
    assert again.get_admin().result().list_databases().result() is not None


def test_a_child_process_has_a_client_of_its_own(conn_id: str) -> None:
    from fluss_orchestrate.airflow import FlussHook

    hook = FlussHook(conn_id)
    hook.get_conn()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            found = hook.get_conn().get_admin().result().list_databases().result()
            os.write(writing, b"ok" if found is not None else b"no")
        finally:
            os._exit(0)
    os.close(writing)
    assert os.read(reading, 10) == b"ok"
    os.waitpid(child, 0)
    os.close(reading)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "has no address"),
        ({"host": "127.0.0.1:1"}, "127.0.0.1:1"),
        ({"host": "embedded:/x", "extra": {"client_options": "{"}}, "no JSON"),
        ({"host": "embedded:/x", "extra": {"cluster_alias": "la ke"}}, "no cluster alias"),
        ({"host": "embedded:/x", "extra": {"client_options": {"writer.akcs": "all"}}}, "writer"),
    ],
)
def test_a_wrong_connection_says_what_is_wrong(
    value: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fluss_orchestrate.airflow import FlussHook, hooks

    monkeypatch.setattr(hooks, "TEST_TIMEOUT_S", 3.0)
    monkeypatch.setenv("AIRFLOW_CONN_WRONG", json.dumps({"conn_type": "fluss", **value}))
    worked, said = FlussHook("wrong").test_connection()
    assert not worked
    assert message in said
    assert not Path("/x").exists()


IMPORTING = """
import json, sys
import airflow.sdk, airflow.sdk.bases.decorator, airflow.sdk.execution_time.context
import airflow.triggers.base
try:
    import airflow.sdk.lineage, airflow.triggers.shared_stream
except ImportError:  # before 3.3
    import airflow.hooks.base, airflow.lineage.hook
before = set(sys.modules)
import fluss_orchestrate.airflow as provider
for name in provider.__all__:
    if name != "FlussBulkLoadOperator":
        getattr(provider, name)
import fluss_orchestrate.airflow.decorators
fluss_asset = provider.fluss_table_asset("a.b")
brought = sorted(set(sys.modules) - before)
heavy = {"pyarrow", "pyspark", "dagster", "pandas", "polars", "pyiceberg", "numpy", "fluss_client"}
heavy.add("airflow.providers.apache.spark.operators")
found = sorted(heavy & sys.modules.keys())
sys.modules["airflow.providers.apache.spark.hooks.spark_submit"] = None
from fluss_orchestrate.airflow.version_compat import AirflowOptionalProviderFeatureException
names = {}
exec("from fluss_orchestrate.airflow import *", names)
assert provider.FlussBulkLoadOperator is names["FlussBulkLoadOperator"]
try:
    provider.FlussBulkLoadOperator(task_id="load", table="a.b", source={"kind": "parquet"})
except AirflowOptionalProviderFeatureException as error:
    print(json.dumps([brought, found, str(error)]))
"""


def imported(program: str) -> Any:
    """What a program in a new process prints in JSON."""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return json.loads(ended.stdout.strip().splitlines()[-1])


def test_importing_costs_little_and_brings_nothing_heavy() -> None:
    """Every module but the bulk load's, over what Airflow itself has imported, in a new process.

    The bulk load says what it needs where the Spark provider is not installed.
    """
    brought, heavy, said = imported(IMPORTING)
    assert heavy == []
    assert "pip install 'fluss-orchestrate[airflow-spark]'" in said
    others = [name for name in brought if not name.startswith("fluss_orchestrate")]
    print(f"{len(brought)} modules, {len(others)} of other packages")
    assert len(brought) <= MODULES_MAX, brought
    assert len(others) <= OTHER_MODULES_MAX, others


IMPORTING_ONE = """
import json, sys
from airflow.sdk import DAG
before = set(sys.modules)
from fluss_orchestrate.airflow import FlussIncrementalScanOperator
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_a_dag_file_with_an_operator_is_parsed_quickly() -> None:
    """A DAG processor parses files all day; what only triggers need is not imported."""
    brought = imported(IMPORTING_ONE)
    print(f"{len(brought)} modules")
    assert len(brought) <= OPERATOR_MODULES_MAX, brought
