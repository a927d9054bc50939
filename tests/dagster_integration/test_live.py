"""The examples for real: the command line, and a `dagster dev` with its daemon and its pages."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import TablePath
from fluss_client.testing import LocalCluster
from fluss_orchestrate import FlussCheckpointStore, TableSpec, apply_tables, tier_table
from fluss_orchestrate.core.checkpoints.report import list_checkpoints
from fluss_orchestrate.dagster import FlussResource
from tests.dagster_integration.live import Dev, dagster_dev
from tests.dagster_integration.tables import append, log_ids, make_table, orders
from tests.fix_either import CLUSTER_FIRST
from tests.needs import chromium
from tests.waiting import patient

EXAMPLES = Path(__file__).parents[2] / "dags" / "dagster"
DEFINITIONS = EXAMPLES / "definitions.py"
ROWS = 250
CASES = Path(__file__).with_name("live_cases.py")
ORDERS = 20
MINUTE = "%Y-%m-%d-%H:%M"
START_TIMEOUT_S = 180
RUN_TIMEOUT_S = 180

# One process for all steps: that each may have its own is shown where they are killed.
IN_PROCESS = {"execution": {"config": {"in_process": {}}}}

MATERIALIZATIONS = """
query ($key: AssetKeyInput!) {
  assetOrError(assetKey: $key) {
    ... on Asset {
      assetMaterializations(limit: 5) {
        runId
        metadataEntries {
          label
          ... on IntMetadataEntry { intValue }
          ... on TextMetadataEntry { text }
        }
      }
    }
  }
}
"""
OBSERVATIONS = """
query ($key: AssetKeyInput!) {
  assetOrError(assetKey: $key) {
    ... on Asset {
      assetObservations(limit: 1) {
        metadataEntries {
          label
          ... on IntMetadataEntry { intValue }
          ... on FloatMetadataEntry { floatValue }
        }
      }
    }
  }
}
"""
RUN = """
query ($id: ID!) {
  runOrError(runId: $id) { ... on Run { status tags { key value } } }
}
"""
TICKS = """
query ($location: String!, $sensor: String!) {
  sensorOrError(sensorSelector: {
    repositoryName: "__repository__", repositoryLocationName: $location, sensorName: $sensor
  }) { ... on Sensor { sensorState { ticks(limit: 20) { status runIds } } } }
}
"""


STALE = "query ($key: AssetKeyInput!) { assetNodes(assetKeys: [$key]) { staleStatus } }"
FRESHNESS = """
query ($key: AssetKeyInput!) {
  assetNodes(assetKeys: [$key]) { freshnessStatusInfo { freshnessStatus } }
}
"""
CHECKS = """
query ($key: AssetKeyInput!) {
  assetNodes(assetKeys: [$key]) {
    assetChecksOrError {
      ... on AssetChecks { checks { name executionForLatestMaterialization { status } } }
    }
  }
}
"""
START_SENSOR = """
mutation ($sensor: SensorSelector!) {
  startSensor(sensorSelector: $sensor) { __typename ... on PythonError { message } }
}
"""


def run(*words: str, cwd: Path, **variables: str) -> str:
    """A command of this environment; its output, if it ended well."""
    program = str(Path(sys.executable).with_name(words[0]))
    own = {"DAGSTER_DISABLE_TELEMETRY": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [program, *words[1:]],
        cwd=cwd,
        env={**os.environ, **own, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def shop_variables(address: str, database: str, home: Path) -> dict[str, str]:
    return {
        "FLUSS_BOOTSTRAP_SERVERS": address,
        "SHOP_DATABASE": database,
        "SHOP_HOME": str(home),
    }


def prepare(fluss: FlussResource, database: str, rows: int, lake: bool = False) -> None:
    """The shop's table with some events in it, as a producer leaves them."""
    schema = pa.schema(
        [
            pa.field("event_id", pa.int64(), nullable=False),
            pa.field("day", pa.string()),
            pa.field("kind", pa.string()),
            pa.field("amount", pa.float64()),
        ]
    )
    spec = TableSpec.of_arrow(f"{database}.events", schema, buckets=2, lake=lake)
    apply_tables(fluss.connection, [spec])
    table = pa.table(
        {
            "event_id": range(rows),
            "day": ["20261116"] * rows,
            "kind": ["order"] * rows,
            "amount": [1.0] * rows,
        },
        schema,
    )
    append(fluss.connection, TablePath(database, "events"), table)


def event_counts(folder: Path) -> Counter[int]:
    files = sorted(folder.glob("*.parquet"))
    return Counter(i for f in files for i in pq.read_table(f)["event_id"].to_pylist())


@pytest.mark.parametrize("fluss_kind", CLUSTER_FIRST, indirect=True)
@pytest.mark.timeout(300)
def test_the_command_line(fluss_address: str, database: str, tmp_path: Path) -> None:
    variables = shop_variables(fluss_address, database, tmp_path)
    run("dagster", "definitions", "validate", "-f", str(DEFINITIONS), cwd=tmp_path, **variables)
    selection = f"key:{database}/tables or key:{database}/events or key:{database}/events_files"
    launch = ["dg", "launch", "-f", str(DEFINITIONS), "--config-json", json.dumps(IN_PROCESS)]
    told = run(*launch, "--assets", selection, cwd=tmp_path, **variables)
    assert "RUN_SUCCESS" in told
    counts = event_counts(tmp_path / "events")
    assert len(counts) == 1_000
    assert set(counts.values()) == {1}


def test_loading_the_example_calls_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was opened while definitions were loaded")

    monkeypatch.setattr("fluss_orchestrate.dagster.resource.shared_connection", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    for address in ("fluss.example:9123", f"embedded:{tmp_path / 'fluss'}"):
        for name, value in shop_variables(address, "shop", tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        loaded = runpy.run_path(str(DEFINITIONS))["defs"]
        assert dg.AssetKey(["shop", "events_files"]) in {
            spec.key for spec in loaded.resolve_all_asset_specs()
        }
    assert not (tmp_path / "fluss").exists()
    assert not (tmp_path / "home").exists()


@pytest.mark.timeout(300)
def test_components_of_the_example(tmp_path: Path) -> None:
    """`dg` finds the components, writes their state down, and loads them while Fluss is away."""
    address = f"embedded:{tmp_path / 'fluss'}"
    prepare(FlussResource(bootstrap_servers=address), "shop", 10)
    project = tmp_path / "components"
    shutil.copytree(EXAMPLES / "components", project)
    variables = {"FLUSS_BOOTSTRAP_SERVERS": address, "PYTHONPATH": "src"}
    run("dg", "utils", "refresh-defs-state", cwd=project, **variables)
    away = {**variables, "FLUSS_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    told = run("dg", "check", "defs", cwd=project, **away)
    assert "All component YAML validated successfully" in told
    assert "All definitions loaded successfully" in told


@dataclass(frozen=True)
class LiveShop:
    """A shop with events, whose lake holds them."""

    fluss: FlussResource
    database: str
    home: Path
    snapshot_id: str

    def location(self, folder: Path, kind: str) -> Path:
        """The example with settings of its own: each code location is a process of its own."""
        variables = shop_variables(self.fluss.bootstrap_servers, self.database, self.home)
        variables["SHOP_LAKE"] = "true"
        file = folder / f"{kind}_shop.py"
        code = f"import os\nos.environ.update({variables!r})\n{DEFINITIONS.read_text()}"
        in_process = "dg.Definitions(executor=dg.in_process_executor)"
        file.write_text(f"{code}\ndefs = dg.Definitions.merge(defs, {in_process})\n")
        return file


@pytest.fixture(scope="module")
def shops(
    lake_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, LiveShop]]:
    """A shop on an embedded Fluss and one on a real cluster."""
    made = {}
    for kind in ("embedded", "cluster"):
        home = tmp_path_factory.mktemp(f"shop_{kind}")
        address = f"embedded:{home / 'fluss'}"
        if kind == "cluster":
            address = str(lake_cluster.info.bootstrap_servers)
        fluss = FlussResource(bootstrap_servers=address, cluster_alias="shop")
        database = f"live_{kind}_{os.getpid()}"
        prepare(fluss, database, ROWS, lake=True)
        receipt = tier_table(fluss.connection, f"{database}.events", allow_tiering=True)
        made[kind] = LiveShop(fluss, database, home, str(receipt.snapshot_id))
    yield made
    for shop in made.values():
        admin = shop.fluss.connection.get_admin().result()
        admin.drop_database(shop.database, ignore_if_not_exists=True, cascade=True).result()


def materialized(dev: Dev, key: list[str]) -> list[dict[str, Any]]:
    found = dev.ask(MATERIALIZATIONS, key={"path": key})["assetOrError"]
    return list(found.get("assetMaterializations", []))


@dataclass(frozen=True)
class Cases:
    """Tables for the definitions of `live_cases.py`, and the minute in which they were filled."""

    fluss: FlussResource
    database: str
    home: Path
    filled_at: datetime

    @property
    def orders(self) -> TablePath:
        return TablePath(self.database, "orders")

    @property
    def minute(self) -> str:
        return self.filled_at.strftime(MINUTE)

    def variables(self) -> dict[str, str]:
        return {
            "CASES_ADDRESS": self.fluss.bootstrap_servers,
            "CASES_DATABASE": self.database,
            "CASES_HOME": str(self.home),
            "CASES_START": (self.filled_at - timedelta(minutes=2)).strftime(MINUTE),
        }


@pytest.fixture(scope="module")
def cases(lake_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cases]:
    address = str(lake_cluster.info.bootstrap_servers)
    fluss = FlussResource(bootstrap_servers=address, cluster_alias="cases")
    database = f"cases_{os.getpid()}"
    for name in ("orders", "in_windows"):
        path = make_table(fluss.connection, TablePath(database, name))
        append(fluss.connection, path, orders(ORDERS))
    yield Cases(fluss, database, tmp_path_factory.mktemp("cases"), datetime.now(UTC))
    admin = fluss.connection.get_admin().result()
    admin.drop_database(database, ignore_if_not_exists=True, cascade=True).result()


@pytest.fixture(scope="module")
def dev(
    shops: dict[str, LiveShop], cases: Cases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dev]:
    """One `dagster dev` for all tests of this module, with its daemon."""
    folder = tmp_path_factory.mktemp("dev")
    files = [shop.location(folder, kind) for kind, shop in shops.items()]
    variables = {**cases.variables(), "FRESHNESS_DAEMON_INTERVAL_SECONDS": "5"}
    with dagster_dev([*files, CASES], folder / "home", variables) as dev:
        dev.wait_for("answer", lambda: dev.ask("{ version }"), START_TIMEOUT_S)
        yield dev


@pytest.mark.timeout(600)
def test_a_sensor_tick_becomes_a_run_and_a_page(
    dev: Dev, shops: dict[str, LiveShop], tmp_path: Path
) -> None:
    for kind, shop in shops.items():
        check_the_run(dev, kind, shop)
        check_the_lake(dev, kind, shop)
    cluster = shops["cluster"]
    check_page(dev, [cluster.database, "events_files"], tmp_path / "asset.png")


@pytest.mark.timeout(900)
def test_what_users_write_runs(dev: Dev, cases: Cases) -> None:
    """Inputs, ops, functions, windows and checks, started from outside and run by the daemon."""
    location = CASES.name
    whole = [["plain"], ["optional"], ["given"], ["copied"], ["report"]]
    whole += [[cases.database, name] for name in ("stored", "doubled")]
    first = [dev.launch(location, whole), dev.launch(location, job="by_ops")]
    assert [dev.finished(run, RUN_TIMEOUT_S) for run in first] == ["SUCCESS"] * 2
    assert told(dev, "plain") == {"type": "Table", "rows": 3}
    assert told(dev, "optional") == {"type": "DataFrame"}
    assert told(dev, "given")["total"] == 3 * sum(range(ORDERS))
    for folder in ("copied", "by_ops"):
        assert file_ids(cases.home / folder) == list(range(ORDERS)), folder
    assert log_ids(cases.fluss.connection, TablePath(cases.database, "doubled")) == [2, 4, 6, 8]


@pytest.mark.timeout(900)
def test_a_second_round_of_runs(dev: Dev, cases: Cases) -> None:
    """Nothing new, and a checkpoint that belongs to another asset."""
    copied, shared = (dev.launch(CASES.name, [[key]]) for key in ("copied", "shared"))
    assert dev.finished(copied, RUN_TIMEOUT_S) == "SUCCESS"
    check_nothing_new(dev)
    check_the_other_sink(dev.finished(shared, RUN_TIMEOUT_S), cases)


def check_nothing_new(dev: Dev) -> None:
    """An empty increment leaves what is downstream of it fresh."""
    assert told(dev, "copied")["fluss/rows"] == 0
    [node] = dev.ask(STALE, key={"path": ["report"]})["assetNodes"]
    assert node["staleStatus"] == "FRESH"


def check_the_other_sink(said: str, cases: Cases) -> None:
    """Two assets on one checkpoint: the second one fails, and takes no row."""
    assert said.startswith("FAILURE")
    assert "CheckpointBindingError" in said
    assert not (cases.home / "shared").exists()


@pytest.mark.timeout(900)
def test_a_check_notices_lag_by_itself(dev: Dev, cases: Cases) -> None:
    """It passed after the increment; a sensor runs it again when rows wait."""
    assert lag_check(dev) == "SUCCEEDED"
    append(cases.fluss.connection, cases.orders, orders(1, first=ORDERS))
    sensor = {
        "repositoryName": "__repository__",
        "repositoryLocationName": CASES.name,
        "sensorName": "fluss_checks",
    }
    started = dev.ask(START_SENSOR, sensor=sensor)["startSensor"]
    assert started["__typename"] == "Sensor"
    dev.wait_for("failed check", lambda: lag_check(dev) == "FAILED", RUN_TIMEOUT_S)


@pytest.mark.timeout(600)
def test_a_table_lives_and_wakes_what_follows(dev: Dev, cases: Cases, tmp_path: Path) -> None:
    """The table sensor and eager() by the daemon, and what the pages show of both."""
    key = [cases.database, "orders"]

    def numbers() -> dict[str, Any]:
        found = dev.ask(OBSERVATIONS, key={"path": key})["assetOrError"]["assetObservations"]
        entries = found[0]["metadataEntries"] if found else []
        return {e["label"]: e.get("intValue", e.get("floatValue")) for e in entries}

    append(cases.fluss.connection, cases.orders, orders(2, first=100))
    rows = len(log_ids(cases.fluss.connection, cases.orders))
    dev.wait_for("rows", lambda: numbers().get("dagster/row_count") == rows, RUN_TIMEOUT_S)
    told = numbers()
    assert told["fluss/offsets_total"] == rows
    assert told["fluss/bytes"] > rows
    assert told[f"fluss/lag_offsets/{cases.database}/copied"] >= 2
    assert {event["runId"] for event in materialized(dev, key)} == {""}, "without a run"
    followed = dev.wait_for("eager run", lambda: materialized(dev, ["follows"]), RUN_TIMEOUT_S)
    tags = dev.ask(RUN, id=followed[0]["runId"])["runOrError"]["tags"]
    assert {"key": "dagster/sensor_name", "value": "automation"} in tags
    check_pages(dev, cases, tmp_path)


def test_the_lakes_stay_fresh(dev: Dev, shops: dict[str, LiveShop]) -> None:
    """Nothing was written since the module began, and the lakes hold everything."""
    for shop in shops.values():
        key = {"path": ["lake", shop.database, "events", "freshness"]}

        def fresh(key: dict[str, Any] = key) -> bool:
            [node] = dev.ask(FRESHNESS, key=key)["assetNodes"]
            status = (node["freshnessStatusInfo"] or {}).get("freshnessStatus")
            assert status in (None, "UNKNOWN", "NOT_APPLICABLE", "HEALTHY"), status
            return status == "HEALTHY"

        dev.wait_for("fresh lake", fresh, RUN_TIMEOUT_S)


@pytest.mark.timeout(900)
def test_a_window_that_has_ended(dev: Dev, cases: Cases) -> None:
    """Rows by their commit time and by a column of theirs; a finished window holds nothing back.

    It is the last test of the module, so that the minute has ended when it begins.
    """
    ended = cases.filled_at.replace(second=0, microsecond=0) + timedelta(minutes=1, seconds=2)
    dev.wait_for("end of the minute", lambda: datetime.now(UTC) > ended, 90)
    timed = [["windows"], ["timed_rows"], [cases.database, "timed"]]
    run = dev.launch(CASES.name, timed, partition=cases.minute)
    assert dev.finished(run, RUN_TIMEOUT_S) == "SUCCESS"
    assert told(dev, "timed_rows") == {"rows": 1}
    assert told(dev, "windows")["fluss/rows"] == ORDERS
    assert file_ids(cases.home / "windows") == list(range(ORDERS))
    kept = list_checkpoints(FlussCheckpointStore(cases.fluss.connection))
    own = [line for line in kept if line.name.startswith(f"{cases.database}/windows/")]
    assert [line.retired for line in own] == [True]


def told(dev: Dev, key: str) -> dict[str, Any]:
    """What the last materialisation of an asset says, as far as it is text or a number."""
    entries = materialized(dev, [key])[0]["metadataEntries"]
    values = {e["label"]: e.get("text", e.get("intValue")) for e in entries}
    return {label: value for label, value in values.items() if value is not None}


def lag_check(dev: Dev) -> str | None:
    """How the lag check of the copy last ended."""
    [node] = dev.ask(CHECKS, key={"path": ["copied"]})["assetNodes"]
    [check] = node["assetChecksOrError"]["checks"]
    last = check["executionForLatestMaterialization"]
    return None if last is None else str(last["status"])


def file_ids(folder: Path) -> list[int]:
    files = sorted(folder.glob("*.parquet"))
    return sorted(i for file in files for i in pq.read_table(file)["id"].to_pylist())


def check_the_run(dev: Dev, kind: str, shop: LiveShop) -> None:
    """The offset sensor has asked for one run, which has taken the rows into files."""
    look = partial(materialized, dev, [shop.database, "events_files"])
    found = dev.wait_for("materialisation", look, RUN_TIMEOUT_S)
    entries = {e["label"]: e for e in found[0]["metadataEntries"]}
    assert entries["fluss/rows"]["intValue"] == ROWS
    assert entries["fluss/source"]["text"] == f"fluss://shop/{shop.database}/events"
    query_run = dev.ask(RUN, id=found[0]["runId"])["runOrError"]
    tags = {tag["key"]: tag["value"] for tag in query_run["tags"]}
    assert tags["fluss/checkpoint"] == f"{shop.database}/events_files"
    assert tags["dagster/sensor_name"] == "new_events"
    sensor = dev.ask(TICKS, location=f"{kind}_shop.py", sensor="new_events")
    ticks = sensor["sensorOrError"]["sensorState"]["ticks"]
    assert [t["runIds"] for t in ticks if t["runIds"]] == [[found[0]["runId"]]]
    assert event_counts(shop.home / "events") == Counter(range(ROWS))


def check_the_lake(dev: Dev, kind: str, shop: LiveShop) -> None:
    """The lake sensor has reported the snapshot once, without a run."""
    look = partial(materialized, dev, ["lake", shop.database, "events"])
    found = dev.wait_for("snapshot", look, RUN_TIMEOUT_S)
    assert len(found) == 1
    entries = {e["label"]: e for e in found[0]["metadataEntries"]}
    assert entries["fluss/snapshot_id"]["text"] == shop.snapshot_id
    assert found[0]["runId"] == ""
    sensor = dev.ask(TICKS, location=f"{kind}_shop.py", sensor="fluss_lake_snapshots")
    ticks = sensor["sensorOrError"]["sensorState"]["ticks"]
    assert {t["status"] for t in ticks} <= {"SUCCESS", "SKIPPED", "STARTED"}


def check_pages(dev: Dev, cases: Cases, folder: Path) -> None:
    """The table's page, the copy's page with its sink, and the sensor's with what it does."""
    from playwright.sync_api import sync_playwright

    location = CASES.name
    wanted = {
        f"assets/{cases.database}/orders?view=events": ["fluss/offsets_total", "fluss/bytes"],
        "assets/copied?view=events": [
            "fluss/sink",
            str(cases.home / "copied"),
            "fluss/replayed",
            "fluss/lag_offsets",
        ],
        f"locations/__repository__@{location}/sensors/fluss_tables": [
            "Reports new rows of 1 table(s)"
        ],
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium())
        try:
            page = patient(browser.new_page(viewport={"width": 1400, "height": 1400}))
            for number, (path, texts) in enumerate(wanted.items()):
                page.goto(f"{dev.url}/{path}")
                for text in texts:
                    page.get_by_text(text).first.wait_for()
                page.screenshot(path=folder / f"{number}.png")
        finally:
            browser.close()


def check_page(dev: Dev, key: list[str], picture: Path) -> None:
    """The asset's page as people see it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium())
        try:
            page = patient(browser.new_page(viewport={"width": 1400, "height": 1400}))
            page.goto(f"{dev.url}/assets/{'/'.join(key)}?view=events")
            page.get_by_text("fluss/rows", exact=True).first.wait_for()
            text = page.locator("body").inner_text()
            assert str(ROWS) in text
            assert f"fluss://shop/{key[0]}/events" in text
            assert "fluss/plan_id" in text
            page.screenshot(path=picture)
            assert picture.stat().st_size > 10_000
        finally:
            browser.close()
