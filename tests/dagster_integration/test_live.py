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
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import TablePath
from fluss_client.testing import LocalCluster
from fluss_orchestrate import TableSpec, apply, tier
from fluss_orchestrate.dagster import FlussResource
from tests.dagster_integration.live import Dev, dagster_dev
from tests.dagster_integration.tables import append
from tests.fix_either import CLUSTER_FIRST
from tests.needs import chromium

EXAMPLES = Path(__file__).parents[2] / "dags" / "dagster"
DEFINITIONS = EXAMPLES / "definitions.py"
ROWS = 250
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
        timeout=280,
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
    apply(fluss.connection, [spec])
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
    """`dg` finds the components, writes their state down, and loads them without a cluster."""
    address = f"embedded:{tmp_path / 'fluss'}"
    prepare(FlussResource(bootstrap_servers=address), "shop", 10)
    project = tmp_path / "components"
    shutil.copytree(EXAMPLES / "components", project)
    variables = {"FLUSS_BOOTSTRAP_SERVERS": address, "PYTHONPATH": "src"}
    run("dg", "utils", "refresh-defs-state", cwd=project, **variables)
    told = run("dg", "check", "defs", cwd=project, **variables)
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
        receipt = tier(fluss.connection, f"{database}.events", allow_tiering=True)
        made[kind] = LiveShop(fluss, database, home, str(receipt.snapshot_id))
    yield made
    for shop in made.values():
        admin = shop.fluss.connection.get_admin().result()
        admin.drop_database(shop.database, ignore_if_not_exists=True, cascade=True).result(60)


def materialized(dev: Dev, key: list[str]) -> list[dict[str, Any]]:
    found = dev.ask(MATERIALIZATIONS, key={"path": key})["assetOrError"]
    return list(found.get("assetMaterializations", []))


@pytest.mark.timeout(600)
def test_a_sensor_tick_becomes_a_run_and_a_page(shops: dict[str, LiveShop], tmp_path: Path) -> None:
    files = [shop.location(tmp_path, kind) for kind, shop in shops.items()]
    with dagster_dev(files, tmp_path / "home", {}) as dev:
        dev.wait_for("answer", lambda: dev.ask("{ version }"), START_TIMEOUT_S)
        for kind, shop in shops.items():
            check_the_run(dev, kind, shop)
            check_the_lake(dev, kind, shop)
        cluster = shops["cluster"]
        check_page(dev, [cluster.database, "events_files"], tmp_path / "asset.png")


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


def check_page(dev: Dev, key: list[str], picture: Path) -> None:
    """The asset's page as people see it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium())
        try:
            page = browser.new_page(viewport={"width": 1400, "height": 1400})
            page.goto(f"{dev.url}/assets/{'/'.join(key)}?view=events", timeout=60_000)
            page.get_by_text("fluss/rows", exact=True).first.wait_for(timeout=90_000)
            text = page.locator("body").inner_text()
            assert str(ROWS) in text
            assert f"fluss://shop/{key[0]}/events" in text
            assert "fluss/plan_id" in text
            page.screenshot(path=picture)
            assert picture.stat().st_size > 10_000
        finally:
            browser.close()
