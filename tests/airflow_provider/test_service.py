"""A real Airflow, driven from outside: backfills, clears, retries, a killed task, watchers.

All of it works on an embedded directory; one backfill works on the real cluster too.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import psutil
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import sync_playwright

from fluss_client import Config, FlussConnection
from fluss_client.backend.embedded.log import appends as embedded_log
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.lake import tier_table
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from tests.airflow_provider.capabilities import has
from tests.airflow_provider.components import until
from tests.airflow_provider.reading import ids, ids_in
from tests.airflow_provider.rows import numbered, numbers_spec
from tests.airflow_provider.running import DAGS
from tests.airflow_provider.service import ENDED_S, AirflowService
from tests.console.accessibility import audit
from tests.fix_postgres import new_database
from tests.needs import chromium
from tests.waiting import patient, scaled

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
DAG_FILE = Path(__file__).with_name("service_dags.py")
TICK_S = 4
"""How long a tick is on an idle machine: rows are written within a tick of their own."""
PARTS = 2
ROWS = 100
LAKE, PAGES, PARTITIONS = has("sqlalchemy_2"), has("plugin_pages"), has("asset_partitions")
TRIGGERED = (
    *("killed", "taken", "mended", "refused", "speaking", "texts"),
    *(("parts",) if PARTITIONS else ()),
)
BEGUN = (
    *("ticks_embedded", "ticks_cluster", "shop_provisioning", "until", "frames"),
    *TRIGGERED,
)
KILLS_MAX = 8


@dataclass
class Place:
    """The running Airflow, what it works on, and where its tasks write."""

    service: AirflowService
    output: Path
    database: str
    clients: dict[str, FlussConnection]
    begin: datetime
    """Rows of part n were committed in the n-th tick after it."""
    tick_s: int
    begun: dict[str, str] = field(default_factory=dict)
    """The runs that were triggered at once at the beginning, by DAG: they share the start."""

    def tick(self, number: int) -> datetime:
        """When a tick began."""
        return self.begin + timedelta(seconds=number * self.tick_s)

    def begin_all(self) -> None:
        """Begin all that does not wait for something else."""
        today = self.hour.replace(hour=0)
        # Of the last date as well, and before it may run: so no run of that date is scheduled.
        self.service.backfill("shop_provisioning", today, today)
        for dag_id in BEGUN:
            self.service.unpause(dag_id)
        (self.output / "hold").touch()
        self.service.backfill("ticks_embedded", self.tick(1), self.tick(PARTS))
        self.begun["until"] = self.service.trigger("until", logical_date=self.tick(1).isoformat())
        self.begun["frames"] = self.service.trigger("frames", conf={"fail": True})
        for dag_id in TRIGGERED:
            self.begun[dag_id] = self.service.trigger(dag_id)

    @property
    def client(self) -> FlussConnection:
        """The client of the embedded directory."""
        return self.clients["embedded"]

    @property
    def hour(self) -> datetime:
        """The hour that has begun last."""
        return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str, lake_cluster: LocalCluster
) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("service")
    output = root / "out"
    output.mkdir()
    database = f"af_service_{os.getpid()}"
    addresses = {
        "embedded": f"embedded:{root / 'fluss'}",
        "cluster": str(lake_cluster.info.bootstrap_servers),
    }
    tick_s = math.ceil(scaled(TICK_S))
    urls = {"table_url": "https://tables.example/{cluster}/{database}/{table}"}
    values = {
        kind: json.dumps({"conn_type": "fluss", "host": address, "extra": urls})
        for kind, address in addresses.items()
    }
    env = {f"AIRFLOW_CONN_FLUSS_{kind.upper()}": value for kind, value in values.items()}
    env |= {
        "AIRFLOW_CONN_FLUSS_DEFAULT": values["embedded"],
        "SERVICE_OUTPUT": str(output),
        "SERVICE_DATABASE": database,
        "SERVICE_TICK_S": str(tick_s),
        "SHOP_DATABASE": "shop",
        "SHOP_OUTPUT": str(output),
    }
    service = AirflowService(root / "airflow", new_database(postgres_url), env)
    for file in (DAG_FILE, *sorted((DAGS / "airflow").glob("shop_*.py"))):
        shutil.copy(file, service.dags)
    (service.dags / "service_tables.yaml").write_text(
        f"tables:\n  - table: {database}.texts\n    columns: {{id: bigint}}\n    buckets: 1\n"
    )
    clients = {
        kind: FlussConnection.create(Config({"bootstrap.servers": address})).result()
        for kind, address in addresses.items()
    }
    with service, ThreadPoolExecutor(1) as background:
        starting = background.submit(service.start)
        begin = _fill(clients, database, tick_s)
        starting.result()
        service.wait_ready([*BEGUN, "shop_hourly", "shop_orders", "shop_lake", "watching"])
        made = Place(service, output, database, clients, begin, tick_s)
        made.begin_all()
        yield made
    for client in clients.values():
        admin = client.get_admin().result()
        admin.drop_database(database, ignore_if_not_exists=True, cascade=True).result()
        client.close()


def _fill(clients: dict[str, FlussConnection], database: str, tick_s: int) -> datetime:
    """Make the tables, and write rows in each of the coming ticks; when the first one began."""
    ticks = numbers_spec(database, "ticks", buckets=1, lake=True)
    for client in clients.values():
        apply_tables(client, [ticks])
    days = {"table": f"{database}.days", "columns": {"id": "bigint", "day": "string not null"}}
    others = [numbers_spec(database, name, buckets=1) for name in ("frames", "watched")]
    others.append(TableSpec.from_mapping({**days, "partition_keys": ["day"], "buckets": 1}))
    parts = {"table": f"{database}.parts", "columns": {"id": "bigint", "part": "string not null"}}
    others.append(TableSpec.from_mapping({**parts, "partition_keys": ["part"], "buckets": 1}))
    apply_tables(clients["embedded"], others)
    load_rows(clients["embedded"], f"{database}.frames", numbered(0, 200), "first")
    load_rows(clients["embedded"], f"{database}.watched", numbered(0, 30), "first")
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    for part in range(PARTS + 1):  # one more than is read: it closes the last tick
        moment = begin + timedelta(seconds=part * tick_s)
        until("the next tick", lambda moment=moment: datetime.now(UTC) > moment)
        for client in clients.values():
            rows = numbered(part * ROWS, part * ROWS + ROWS)
            load_rows(client, ticks.table, rows, f"part {part}")
        assert datetime.now(UTC) < moment + timedelta(seconds=tick_s), "the rows missed their tick"
    for client in clients.values() if LAKE else ():
        tier_table(client, ticks.table, allow_tiering=True)
    return begin


@contextmanager
def embedded_clock(moment: datetime) -> Iterator[None]:
    """Let the embedded engine take what this process writes as if it were that time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded_log, "now_ms", lambda: int(moment.timestamp() * 1000))
        yield


def _ticks_were_read(place: Place, kind: str) -> None:
    dag_id = f"ticks_{kind}"
    runs = place.service.all_ended(dag_id, PARTS)
    assert [run["state"] for run in runs] == ["success"] * PARTS
    rows = [place.service.xcom(dag_id, run["dag_run_id"], "ticks")["rows"] for run in runs]
    assert rows == [ROWS] * PARTS
    assert ids(place.output / f"ticks-{kind}") == list(range(PARTS * ROWS))


def test_backfill_on_the_real_cluster_by_the_command_line(place: Place) -> None:
    """Runs without a data interval read from the tick before."""
    dates = ["--from-date", place.tick(1).isoformat(), "--to-date", place.tick(PARTS).isoformat()]
    place.service.cli("backfill", "create", "--dag-id", "ticks_cluster", *dates)
    _ticks_were_read(place, "cluster")


def test_backfill_on_an_embedded_directory_after_a_sensor(place: Place) -> None:
    """The sensor waits until the lake holds all up to the run's own time."""
    _ticks_were_read(place, "embedded")


def test_the_shops_dags_as_backfills_and_by_schedule(place: Place) -> None:
    """`dags/airflow`, as it is, for the last two hours and for today; orders also by schedule."""
    service, hour = place.service, place.hour
    today = hour.replace(hour=0)
    runs = service.all_ended("shop_provisioning", 1)
    assert [run["state"] for run in runs] == ["success"]
    for part in range(2):
        with embedded_clock(hour - timedelta(minutes=90 - 60 * part)):
            load_rows(place.client, "shop.orders", _orders(part * ROWS), f"hour {part}")
    for dag_id in ("shop_hourly", "shop_orders", *(["shop_lake"] if LAKE else [])):
        first, last = (today, today) if dag_id == "shop_lake" else (hour, hour)
        if dag_id == "shop_orders":  # so that the scheduler itself makes the run of this hour
            last = hour - timedelta(hours=1)
        service.backfill(dag_id, first - timedelta(hours=dag_id != "shop_lake"), last)
        service.unpause(dag_id)
    service.unpause("shop_totals")
    hourly = service.all_ended("shop_hourly", 2)
    assert [run["state"] for run in hourly] == ["success" if LAKE else "failed"] * 2
    found = pq.read_table(place.output / "orders").column("order_id").to_pylist()
    assert sorted(found) == list(range(2 * ROWS))
    if LAKE:
        lake = service.all_ended("shop_lake", 1)[0]
        assert service.xcom("shop_lake", lake["dag_run_id"], "count") == 50
    for run_type in ("backfill", "scheduled"):
        assert service.all_ended("shop_orders", 1, run_type)[0]["state"] == "success"
    totals = service.all_ended("shop_totals", 1, "asset_triggered")
    assert {run["state"] for run in totals} == {"success"}


def _orders(first: int) -> Any:
    import pyarrow as pa

    numbers = pa.array(range(first, first + ROWS), pa.int64())
    amounts = pa.array([1] * ROWS, pa.decimal128(12, 2))
    return pa.table({"order_id": numbers, "region": ["north"] * ROWS, "amount": amounts})


def test_an_end_in_time_that_a_native_template_gives(place: Place) -> None:
    assert place.service.ended("until", place.begun["until"]) == {"until": "success"}
    assert ids(place.output / "until-embedded") == list(range(ROWS))


def test_a_backfill_of_rows_that_the_cursor_took(place: Place) -> None:
    """They are refused, or left out: never written twice."""
    service, cursor = place.service, place.begun["taken"]
    assert set(service.ended("taken", cursor).values()) == {"success"}
    service.backfill("taken", place.tick(1), place.tick(1))
    backfill = service.all_ended("taken", 1)[0]["dag_run_id"]
    assert service.ended("taken", backfill) == {"taken": "failed", "skipping": "success"}
    assert "RowsTakenError" in service.task_log("taken", backfill, "taken")
    assert service.xcom("taken", backfill, "skipping")["rows"] == 0
    for name in ("taken", "skipping"):
        assert ids(place.output / f"{name}-embedded") == list(range((PARTS + 1) * ROWS))


def test_results_of_adopted_plans_are_kept(place: Place) -> None:
    """A run that finishes a failed run's plan returns what the function gave for its rows."""
    service, table = place.service, f"{place.database}.frames"

    def run(rows: range, fail: bool = False) -> str:
        if rows:
            load_rows(place.client, table, numbered(rows.start, rows.stop), f"{rows}")
        run_id = service.trigger("frames", conf={"fail": fail})
        assert service.ended("frames", run_id) == {"count": "failed" if fail else "success"}
        return run_id

    assert service.ended("frames", place.begun["frames"]) == {"count": "failed"}
    assert service.xcom("frames", run(range(0)), "count") == 200
    run(range(200, 250), fail=True)
    both = run(range(250, 280))
    assert service.xcom("frames", both, "count") == [50, 30]
    said = service.task_log("frames", both, "count")
    assert "which run airflow/frames/count/" in said
    assert "finished the plan of run airflow/frames/count/" in said
    assert "50 rows" in said
    assert "30 offsets in 1 ranges: bucket 0 [250, 280)" in said
    service.clear("frames", both)
    assert service.ended("frames", both) == {"count": "success"}
    assert service.xcom("frames", both, "count") == [50, 30]


def test_a_task_killed_after_its_write_is_retried(place: Place) -> None:
    """SIGKILL of the task's own process: the scheduler retries, and each row is there once."""
    service, run_id = place.service, place.begun["killed"]
    pid = place.output / "pid"
    until("the task's write", lambda: pid.exists() and pid.read_text(), wait_s=ENDED_S)
    (place.output / "hold").unlink()
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert service.ended("killed", run_id) == {"killed": "success"}
    assert [task["try_number"] for task in service.tasks("killed", run_id)] == [2]
    assert ids(place.output / "killed") == list(range((PARTS + 1) * ROWS))


def test_a_watched_asset_with_a_name_of_its_own(place: Place) -> None:
    run = place.service.all_ended("watching", 1, "asset_triggered")[0]
    assert place.service.xcom("watching", run["dag_run_id"], "told") == 30
    assert "not found" not in place.service.log("triggerer")


def test_what_cannot_work_fails_at_once_and_says_why(place: Place) -> None:
    """No retry is used, nothing is written, no checkpoint is made."""
    service, run_id = place.service, place.begun["refused"]
    states = service.ended("refused", run_id)
    assert set(states.values()) == {"failed"}, states
    assert {task["try_number"] for task in service.tasks("refused", run_id)} == {1}
    said = {task_id: service.task_log("refused", run_id, task_id) for task_id in states}
    assert "the template of 'sink.path'" in said["empty_path"]
    assert "the template of 'rows'" in said["empty_rows"]
    assert f"no checkpoint '{place.database}-frmes'" in said["mistyped"]
    assert "it has no lake" in said["no_lake"]
    assert "is not partitioned by dya, but by day" in said["no_such_column"]
    assert "is of cluster 'another'" in said["other_alias"]
    assert "scan_options has no 'on_pendng': did you mean 'on_pending'?" in said["mistyped_option"]
    assert "'orders' names no namespace" in said["no_namespace"]
    assert "there is no file tabels.yaml in" in said["no_file"]
    assert "'noon' is no time" in said["no_time"]
    assert "rows, not at least 1000000000" in said["few"]
    assert "is not fresh: no row was committed since" in said["stale"]
    for task_id in ("mistyped", "mistyped_option", "no_namespace", "no_file", "no_time", "few"):
        # The sentence is the only exception of the traceback.
        assert said[task_id].count('"exc_type"') == 1, (task_id, said[task_id])
    names = FlussCheckpointStore(place.client).names()
    made = {f"{place.database}-{name}" for name in ("empty_path", "frmes", "other_alias")}
    assert not made & set(names)


def test_sensors_say_what_they_wait_for_and_how_far_it_is(place: Place) -> None:
    service, run_id = place.service, place.begun["speaking"]
    states = service.ended("speaking", run_id)
    said = {task_id: service.task_log("speaking", run_id, task_id) for task_id in states}
    wanted = {"deferred": "failed", "poked": "failed", "skipped": "skipped"}
    assert states == wanted, said["skipped"][-3000:]
    rows = (PARTS + 1) * ROWS
    table = f"{place.database}.ticks"
    assert f"waiting until {table} has at least 1000000 new offsets" in said["deferred"]
    assert f"{rows} of 1000000 new offsets have come" in said["deferred"]
    assert "after 4 s fewer than 1000000 new rows have come" in said["deferred"]
    assert f"bucket 0 at {rows} of 1000000" in said["poked"]
    assert "after 2 s the log has not come to the offsets" in said["poked"]
    assert f"the lake still lacks {10**6 - rows} offsets" in said["skipped"]
    for text in said.values():
        assert "WaitTimedOutError" in text
        assert "Trigger timeout" not in text
        assert text.count("waiting until") <= 2
    link = f"https://tables.example/default/{place.database}/ticks"
    page = f"{service.url}/fluss/fluss_embedded/table?name={place.database}.ticks"
    links = service.links("speaking", run_id, "deferred")
    assert links == {"Fluss table": link, "Fluss console": page if PAGES else None}


def test_texts_of_templates_files_beside_the_dag_and_dates(place: Place) -> None:
    """And a cleared write says that nothing was sent."""
    service, run_id = place.service, place.begun["texts"]
    assert set(service.ended("texts", run_id).values()) == {"success"}
    assert service.xcom("texts", run_id, "written")["rows"] == 5
    assert service.xcom("texts", run_id, "counted")["rows"] == 3
    made = [part["day"] for part in service.xcom("texts", run_id, "days")["create"]]
    assert made == ["20261118", "20261119"]
    link = f"https://tables.example/default/{place.database}/texts"
    assert service.links("texts", run_id, "written")["Fluss table"] == link
    assert "sent 5 rows" in service.task_log("texts", run_id, "written")
    service.clear("texts", run_id)
    assert set(service.ended("texts", run_id).values()) == {"success"}
    said = service.task_log("texts", run_id, "written", 2)
    assert "nothing was sent; an earlier try has sent the 5 rows" in said


def test_the_shops_dags_by_hand_and_cleared_with_the_triggerer_killed(place: Place) -> None:
    """Runs that are triggered by hand have no logical date."""
    service = place.service
    told = service.cli("dags", "trigger", "shop_orders", "--output", "json")
    (made,) = re.findall(r"^\[\{.*\}\]$", told, re.MULTILINE)
    by_hand = json.loads(made)[0]["dag_run_id"]
    lake = service.trigger("shop_lake") if LAKE else ""
    service.kill("triggerer")
    assert service.ended("shop_orders", by_hand) == {"write": "success"}
    assert service.xcom("shop_orders", by_hand, "write")["rows"] == 100
    if not LAKE:
        return
    assert set(service.ended("shop_lake", lake).values()) == {"success"}
    before = service.xcom("shop_lake", lake, "count")
    service.clear("shop_lake", lake)
    assert set(service.ended("shop_lake", lake).values()) == {"success"}
    assert service.xcom("shop_lake", lake, "count") == before


def test_the_shops_orders_with_the_worker_killed_and_cleared(place: Place) -> None:
    """SIGKILL of the process of `dags/airflow/shop_orders.py`; the cleared task writes once."""
    service = place.service
    for _ in range(KILLS_MAX):
        run_id = service.trigger("shop_orders")
        if _kill_worker(service, run_id):
            break
    else:
        raise AssertionError("every task ended before it could be killed")
    assert service.ended("shop_orders", run_id) == {"write": "failed"}
    service.clear("shop_orders", run_id)
    assert service.ended("shop_orders", run_id) == {"write": "success"}
    assert service.xcom("shop_orders", run_id, "write")["rows"] == 100
    begun = datetime.fromisoformat(service.run("shop_orders", run_id)["run_after"])
    ids_of_run = range(int(begun.timestamp()) * 100, int(begun.timestamp()) * 100 + 100)
    written = [n for n in ids_in(place.client, "shop.orders", "order_id") if n in ids_of_run]
    assert sorted(written) == list(ids_of_run)


def _kill_worker(service: AirflowService, run_id: str) -> bool:
    """Kill the process of a run's only task; whether it was alive then."""

    def begun() -> Any:
        (found,) = service.tasks("shop_orders", run_id)
        return found if found["state"] in ("running", "success", "failed") else None

    task = until("the task's begin", begun, wait_s=ENDED_S, pause_s=0.02)
    titles = {f"airflow worker -- {task['id']}"}
    for process in psutil.process_iter(["cmdline"]):
        if " ".join(process.info["cmdline"] or ()).strip() in titles:
            process.kill()
            return True
    return False


@pytest.mark.airflow_has("asset_partitions")
def test_each_partition_starts_a_run_of_its_own(place: Place) -> None:
    """A task's partitions are keys of its asset's events, which a partitioned DAG takes."""
    service, run_id = place.service, place.begun["parts"]
    assert service.ended("parts", run_id) == {"write": "success"}
    runs = service.all_ended("of_a_part", 2, "asset_triggered")
    assert {run["state"] for run in runs} == {"success"}
    told = [service.xcom("of_a_part", run["dag_run_id"], "rows_of_part") for run in runs]
    assert sorted(told) == [["north", 6], ["south", 3]]


def test_the_connection_form_shows_no_null(place: Place, tmp_path: Path) -> None:
    """A connection without extras is opened in the page, changed and saved."""
    service, path = place.service, "/api/v2/connections/by_hand"
    plain = {"connection_id": "by_hand", "conn_type": "fluss", "host": "embedded:/nowhere"}
    service.call("POST", "/api/v2/connections", plain)
    with service.page() as page:
        try:
            service.log_in(page, "ann")
            page.goto(f"{service.url}/connections")
            row = page.get_by_role("row").filter(has_text="by_hand")
            row.get_by_role("button", name="Edit").first.click()
            page.get_by_text("Extra Fields", exact=False).first.click()
            alias = page.locator("[name=element_cluster_alias]")
            alias.wait_for()
            said = page.get_by_role("dialog").first.inner_text()
            assert said.count("*\n") == 2, f"an extra field is required: {said}"
            shown = [field.input_value() for field in page.locator("input, textarea").all()]
            assert len(shown) >= 8
            assert not [value for value in shown if "null" in value or "undefined" in value]
            alias.fill("shop")
            page.get_by_role("button", name="Save").click()
            until("the saving", lambda: "shop" in str(service.get(path)["extra"]))
        finally:
            page.screenshot(path=tmp_path / "connection.png")
    kept = json.loads(service.get(path)["extra"])
    assert kept.pop("cluster_alias") == "shop"
    assert not [value for value in kept.values() if value is None or value == "null"]
    from airflow.sdk import Connection

    from fluss_orchestrate.airflow.hooks import alias_of, config_of

    extra = json.dumps({**kept, "cluster_alias": "shop"})
    found = Connection(conn_id="by_hand", conn_type="fluss", host="embedded:/nowhere", extra=extra)
    assert alias_of(found) == "shop"
    assert config_of(found).resolved_bootstrap() == "embedded:/nowhere"


def test_a_mended_sensor_waits_for_what_it_names_now(place: Place) -> None:
    service, run_id = place.service, place.begun["mended"]
    assert service.ended("mended", run_id) == {"wait": "failed"}
    file = service.dags / DAG_FILE.name
    file.write_text(file.read_text().replace("tikcs", "ticks"))
    service.clear("mended", run_id)
    assert service.ended("mended", run_id) == {"wait": "success"}


@pytest.mark.airflow_lacks("plugin_pages")
def test_no_console_before_airflow_has_pages(place: Place) -> None:
    """Its API server has no such address; `fluss-orchestrate ui` shows the same."""
    answer = httpx.get(
        f"{place.service.url}/fluss/fluss_embedded/api/overview", trust_env=False, timeout=None
    )
    assert "checkpoints" not in answer.text


@pytest.mark.airflow_has("plugin_pages", instead="test_no_console_before_airflow_has_pages")
def test_the_console_is_behind_the_login_of_airflow(place: Place) -> None:
    """401 without a user, no action for a viewer, and an action by its form for an administrator.

    The pages are opened in a browser that has logged in to Airflow, in Airflow's own navigation.
    """
    service = place.service
    run_id = place.begun["until"]
    assert service.ended("until", run_id) == {"until": "success"}
    link = service.links("until", run_id, "until")["Fluss console"]
    address = f"{service.url}/fluss/fluss_embedded"
    assert link.startswith(f"{address}/checkpoint?name=")
    reset = link.replace("/checkpoint?", "/act/reset?")
    for path in ("/", "/api/overview", "/metrics", "/act/reset", "/assets/console.css"):
        assert httpx.get(address + path, trust_env=False, timeout=None).status_code == 401
    viewer = {"authorization": f"Bearer {service.token('vic')}"}
    seen = httpx.get(link, headers=viewer, trust_env=False, timeout=None)
    assert seen.status_code == 200
    assert "Reset…" not in seen.text
    assert httpx.get(reset, headers=viewer, trust_env=False, timeout=None).status_code == 403
    origin = {**viewer, "origin": service.url}
    assert httpx.post(reset, headers=origin, trust_env=False, timeout=None).status_code == 403
    gone = httpx.get(f"{service.url}/fluss/no_such/", headers=viewer, trust_env=False, timeout=None)
    assert gone.status_code == 404
    broken = {"authorization": "Bearer no.such.token"}
    assert httpx.get(link, headers=broken, trust_env=False, timeout=None).status_code == 401
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = patient(browser.new_page(viewport={"width": 1360, "height": 900}))
        service.log_in(page, "ann")
        page.goto(f"{service.url}/plugin/fluss")
        framed = page.frame_locator("iframe")
        framed.get_by_role("link", name="fluss_embedded").click()
        row = framed.locator("tr", has_text=f"{place.database}.ticks").first
        row.wait_for()
        page.screenshot(path=place.output / "airflow-console.png")
        page.goto(link)
        assert audit(page) == []
        page.get_by_role("link", name="Reset…").click()
        page.get_by_label("Why?").fill("a test of Airflow")
        page.get_by_role("button", name="Reset a checkpoint").click()
        page.locator("[role=status]").wait_for()
        browser.close()
    name = parse_qs(urlsplit(link).query)["name"][0]
    head = FlussCheckpointStore(place.client).require(name)
    assert head.details["reason"] == "a test of Airflow (ann, in the console)"
