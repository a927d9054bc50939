"""Every old name, parameter and option of the table works, warns, and names the new one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fluss_client import Config, FlussConnection
from fluss_orchestrate.deprecated import ALL_COMMANDS, RENAMED, Renamed

pytestmark = pytest.mark.usefixtures("airflow_home")
GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
NAMES = [entry for entry in RENAMED if entry.is_name]
OPTIONS = [entry for entry in RENAMED if entry.is_option]
PARAMETERS = [entry for entry in RENAMED if not entry.is_name and not entry.is_option]
TABLE = "shop.orders"


def named(entry: Renamed) -> str:
    return f"{entry.owner}-{entry.old}"


@pytest.mark.parametrize("entry", NAMES, ids=named)
def test_old_names(entry: Renamed) -> None:
    package = importlib.import_module(entry.owner)
    with pytest.warns(DeprecationWarning, match=rf"{entry.old} is deprecated.*\b{entry.new}\b"):
        old = getattr(package, entry.old)
    assert old is getattr(package, entry.new)
    assert entry.old not in package.__all__
    assert entry.new in package.__all__


def scan_of(kind: str) -> Callable[..., Any]:
    def make(connection: FlussConnection, **given: Any) -> Any:
        scan = getattr(importlib.import_module("fluss_orchestrate"), kind)
        return scan(connection, TABLE, **given).settings.name

    return make


def operator(kind: str, attribute: str, **needed: Any) -> Callable[..., Any]:
    def make(connection: FlussConnection, **given: Any) -> Any:
        task = getattr(importlib.import_module("fluss_orchestrate.airflow"), kind)
        return getattr(task(task_id="t", table=TABLE, **needed, **given), attribute)

    return make


def trigger(kind: str, attribute: str) -> Callable[..., Any]:
    def make(connection: FlussConnection, **given: Any) -> Any:
        made = getattr(importlib.import_module("fluss_orchestrate.airflow"), kind)
        return getattr(made(table=TABLE, **given), attribute)

    return make


def asset_alias(connection: FlussConnection, **given: Any) -> str:
    from fluss_orchestrate.airflow import fluss_table_asset

    return fluss_table_asset(TABLE, **given).uri.split("/")[2]


def resource_setting(connection: FlussConnection, **given: Any) -> Any:
    from fluss_orchestrate.dagster import FlussResource

    settings = FlussResource(bootstrap_servers="h:1", **given).settings()
    return {key: settings[key] for key in MAPPING}


def component_setting(connection: FlussConnection, **given: Any) -> Any:
    from fluss_orchestrate.dagster.components import FlussConnectionComponent

    return FlussConnectionComponent(bootstrap_servers="h:1", **given).resource().client_options


def lake_call(name: str) -> Callable[..., Any]:
    """A call that refuses before it asks for a lake; the old word must reach its parameter."""

    def call(connection: FlussConnection, **given: Any) -> Any:
        function = getattr(importlib.import_module("fluss_orchestrate"), name)
        if name == "TieringWorker":
            return function(connection, allow_tiering=True, **given)._catalog
        if name == "wait_for_snapshot":
            # The coroutine is not awaited: how it was called is what counts.
            coroutine = function(connection, TABLE, **given)
            seen = coroutine.cr_frame.f_locals["covers"]
            coroutine.close()
            return seen
        if name == "tier_table":
            from fluss_orchestrate.core.lake import TieringNotAllowedError

            with pytest.raises(TieringNotAllowedError):
                function(connection, TABLE, **given)
        else:
            assert function(connection, TABLE, **given).read_all().num_rows == 0
        return given.popitem()[1]

    return call


def dagster_call(method: str, attribute: str) -> Callable[..., Any]:
    def call(connection: FlussConnection, **given: Any) -> Any:
        import dagster as dg

        from fluss_orchestrate.dagster import FlussResource, resource

        seen: dict[str, Any] = {}

        def increment(*given: Any) -> dg.MaterializeResult[Any]:
            """Arguments: connection, context, table, sink, choices, asset key."""
            seen.update(asdict(given[4]))
            return dg.MaterializeResult()

        target: Any = resource.work if method == "incremental" else None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FlussResource, "connection", connection)
            if target is not None:
                patch.setattr(target, "increment", increment)
                FlussResource(bootstrap_servers="h:1").incremental(None, TABLE, None, **given)
                return seen[attribute]
            from fluss_orchestrate.dagster import spark

            patch.setattr(spark, "bulk_load_asset", lambda *told: seen.update(options=told[-1]))
            FlussResource(bootstrap_servers="h:1").bulk_load(None, None, TABLE, **given)
            return seen[attribute]

    return call


def ignore_rows(rows: Any) -> None:
    """A sink."""


MAPPING = {"cluster.alias": "shop"}
CASES: Mapping[str, tuple[Callable[..., Any], Any]] = {
    "IncrementalScan-name": (scan_of("IncrementalScan"), "c"),
    "IntervalScan-name": (scan_of("IntervalScan"), "c"),
    "read_table-overrides": (lake_call("read_table"), {"uri": "x"}),
    "tier_table-overrides": (lake_call("tier_table"), {"uri": "x"}),
    "TieringWorker-overrides": (lake_call("TieringWorker"), {"uri": "x"}),
    "wait_for_snapshot-target": (lake_call("wait_for_snapshot"), "latest"),
    "fluss_table_asset-cluster": (asset_alias, "lake"),
    "FlussBulkLoadOperator-options": (
        operator("FlussBulkLoadOperator", "load_options", source={"kind": "parquet"}),
        {"columns": {"a": "b"}},
    ),
    "FlussIncrementalScanOperator-options": (
        operator("FlussIncrementalScanOperator", "scan_options", checkpoint="c", sink=ignore_rows),
        {"on_pending": "skip"},
    ),
    "FlussOffsetSensor-rows": (operator("FlussOffsetSensor", "min_offsets"), 7),
    "FlussOffsetSensor-since": (operator("FlussOffsetSensor", "start"), "earliest"),
    "FlussOffsetTrigger-rows": (trigger("FlussOffsetTrigger", "min_offsets"), 7),
    "FlussOffsetTrigger-cluster": (trigger("FlussOffsetTrigger", "cluster_alias"), "lake"),
    "FlussLakeSnapshotTrigger-cluster": (
        trigger("FlussLakeSnapshotTrigger", "cluster_alias"),
        "lake",
    ),
    "FlussResource-options": (resource_setting, MAPPING),
    "FlussResource.incremental-name": (dagster_call("incremental", "checkpoint"), "c"),
    "FlussResource.incremental-**scan_options": (
        dagster_call("incremental", "scan_options"),
        {"start": "latest"},
    ),
    "FlussResource.bulk_load-**options": (
        dagster_call("bulk_load", "options"),
        {"transform_sql": "select 1"},
    ),
    "FlussConnectionComponent-options": (component_setting, MAPPING),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlussConnection]:
    """A place with one table that has no rows."""
    from fluss_orchestrate import TableSpec, apply_tables

    address = f"embedded:{tmp_path_factory.mktemp('fluss')}"
    spec = {"table": TABLE, "columns": [{"name": "id", "type": "INT"}]}
    with FlussConnection.create(Config({"bootstrap.servers": address})).result() as connection:
        apply_tables(connection, [TableSpec.from_mapping(spec)])
        yield connection


@pytest.mark.parametrize("entry", PARAMETERS, ids=named)
def test_old_parameters(shop: FlussConnection, entry: Renamed) -> None:
    call, value = CASES[named(entry)]
    old = value if entry.old.startswith("**") else {entry.old: value}
    with pytest.warns(DeprecationWarning, match=rf"{entry.owner}.*\b{entry.new}\b"):
        by_old = call(shop, **old)
    # The new word does the same, without a warning: warnings are errors here.
    assert by_old == call(shop, **{entry.new: value}) == value


def test_old_and_new_together_are_refused(shop: FlussConnection) -> None:
    from fluss_orchestrate import IncrementalScan

    with pytest.raises(TypeError, match="'checkpoint' or 'name', not both"):
        IncrementalScan(shop, TABLE, checkpoint="a", name="b")  # type: ignore[call-arg]


def test_mapped_tasks_take_old_parameters() -> None:
    from fluss_orchestrate.airflow import FlussOffsetSensor

    FlussOffsetSensor.partial(task_id="t", rows=3)  # warns when it is expanded
    with pytest.warns(DeprecationWarning, match="min_offsets"):
        sensor = FlussOffsetSensor(task_id="u", table="a.b", default_args={"rows": 3})
    assert sensor.min_offsets == 3


@pytest.mark.parametrize("entry", OPTIONS, ids=named)
def test_old_options(entry: Renamed) -> None:
    from typer.testing import CliRunner

    from fluss_orchestrate.cli.app import app

    command = "databases ls" if entry.owner == ALL_COMMANDS else entry.owner
    value = "nonsense"
    said = []
    for option in (entry.old, entry.new):
        arguments = [*command.split(), "-b", "embedded:/none", option, value]
        if "ls" not in arguments:
            arguments.insert(len(command.split()), TABLE)
        result = CliRunner().invoke(app, arguments)
        assert "No such option" not in result.stderr
        said.append(result.stderr)
        shown = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"}).stdout
        assert (option in shown) == (option == entry.new)
    note, same = f"note: {entry.old} is deprecated: use {entry.new}\n", said[1]
    assert said[0] == note + same


def test_the_glossary_has_the_table() -> None:
    page = GLOSSARY.read_text()
    for entry in RENAMED:
        assert f"| `{entry.owner}` | `{entry.old}` | `{entry.new}` |" in page
