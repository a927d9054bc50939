"""A whole Airflow on loopback: API server, scheduler with local workers, DAG processor, triggerer.

It is driven from outside only, by its REST API and its command line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from fluss_client.testing.launching import pick
from tests.airflow_provider.components import Component, until
from tests.needs import chromium
from tests.waiting import patient, scaled

STARTED_S = 240.0
ENDED_S = 300.0
ENDED = ("success", "failed")
COMPONENTS = {
    "api": ["api-server", "--workers", "1"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag_processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
PRELOAD = """
import sys

# Workers and parsers of DAGs are forked from these, and need not import all this then.
if {"scheduler", "dag-processor"} & set(sys.argv):
    import airflow.sdk.execution_time.task_runner
    import pyarrow.parquet
    import fluss_orchestrate.airflow.decorators
    import fluss_orchestrate.core.conditions
    import fluss_orchestrate.core.job
    import fluss_orchestrate.core.loading
    import fluss_orchestrate.core.provisioning
    import fluss_orchestrate.core.sinks
"""
USERS = {"ann": "admin", "vic": "viewer"}
"""The users and their roles."""
Json = dict[str, Any]


def password_of(user: str) -> str:
    """The password of a user."""
    return f"the password of {user}"


class AirflowService:
    """Airflow with a home of its own; `env` is what its processes see besides.

    `database` is the URL of an empty PostgreSQL database: Airflow refuses backfills on SQLite
    when two processes write at once.
    """

    def __init__(self, home: Path, database: str, env: dict[str, str]) -> None:
        self.home = home
        self.dags = home / "dags"
        self.dags.mkdir(parents=True)
        (home / "config").mkdir()
        (home / "config" / "airflow_local_settings.py").write_text(PRELOAD)
        (home / "passwords.json").write_text(json.dumps({u: password_of(u) for u in USERS}))
        self._port = pick(set())
        self.url = f"http://127.0.0.1:{self._port}"
        settings = _settings(home, self._port)
        settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = database
        self.env = {**os.environ, **settings, **env}
        self._stack = ExitStack()
        self._components: dict[str, Component] = {}
        self._token = ""

    def __enter__(self) -> AirflowService:
        return self

    def start(self) -> None:
        """Make the database's tables, and start all components."""
        self.cli("db", "migrate")
        for name, arguments in COMPONENTS.items():
            component = Component(arguments, self.home / f"{name}.log", self.env)
            self._components[name] = self._stack.enter_context(component)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def kill(self, name: str) -> None:
        """Kill a component with all its processes, and start it again."""
        self._components[name].kill()
        component = Component(COMPONENTS[name], self.home / f"{name}.log", self.env)
        self._components[name] = self._stack.enter_context(component)

    def log(self, name: str) -> str:
        """What a component has said."""
        return (self.home / f"{name}.log").read_text(errors="replace")

    def wait_ready(self, dag_ids: list[str]) -> None:
        """Wait until all components live, and the DAGs are known."""

        def healthy() -> bool:
            try:
                found = self.get("/api/v2/monitor/health")
            except OSError:
                return False
            parts = ("scheduler", "dag_processor", "triggerer")
            return all((found[part] or {}).get("status") == "healthy" for part in parts)

        self._until("Airflow's start", healthy, STARTED_S)
        self._token = self.token("ann")
        self._until("the DAGs", lambda: set(dag_ids) <= self._dag_ids(), STARTED_S)

    def _dag_ids(self) -> set[str]:
        errors = self.get("/api/v2/importErrors")["import_errors"]
        assert errors == [], errors
        return {dag["dag_id"] for dag in self.get("/api/v2/dags?limit=100")["dags"]}

    def _until(self, what: str, check: Any, wait_s: float = ENDED_S) -> Any:
        def checked() -> Any:
            ended = [name for name, part in self._components.items() if part.has_ended]
            assert not ended, f"{ended} ended before {what}"
            return check()

        try:
            return until(what, checked, wait_s=wait_s)
        except AssertionError as error:
            said = "\n".join(f"--- {n}\n{self.log(n)[-2500:]}" for n in COMPONENTS)
            raise AssertionError(f"{error}\n{said}") from None

    def get(self, path: str) -> Json:
        """What the API answers."""
        return self.call("GET", path)

    def token(self, user: str) -> str:
        """A token of the API for a user."""
        login = {"username": user, "password": password_of(user)}
        return str(self.call("POST", "/auth/token", login)["access_token"])

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        """A request to the API."""
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
        )
        try:
            with urllib.request.urlopen(request, timeout=scaled(60)) as answer:
                found: Json = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from None

    def cli(self, *arguments: str) -> str:
        """Run `airflow` with arguments; what it prints."""
        ended = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    @contextmanager
    def page(self) -> Iterator[Any]:
        """A page of a real browser, by which Airflow's own pages are looked at."""
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            try:
                yield patient(browser.new_page(viewport={"width": 1400, "height": 1400}))
            finally:
                browser.close()

    def log_in(self, page: Any, user: str) -> None:
        """Log in to Airflow in a page, by its form."""
        page.goto(f"{self.url}/auth/login")
        page.locator("input[name=username]").fill(user)
        page.locator("input[name=password]").fill(password_of(user))
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(lambda url: "login" not in url)

    def run(self, dag_id: str, run_id: str) -> Json:
        """A run, as the API describes it."""
        return self.get(self._run(dag_id, run_id))

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler run the DAG."""
        self.call("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, **body: Any) -> str:
        """Begin a run; its id."""
        made = self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None, **body})
        return str(made["dag_run_id"])

    def backfill(self, dag_id: str, first: datetime, last: datetime, **body: Any) -> None:
        """Backfill the runs of a range of dates, all at once."""
        dates = {"from_date": first.isoformat(), "to_date": last.isoformat()}
        self.call("POST", "/api/v2/backfills", {"dag_id": dag_id, **dates, **body})

    def clear(self, dag_id: str, run_id: str) -> None:
        """Clear all tasks of a run."""
        body = {"dry_run": False, "only_failed": False}
        self.call("POST", f"{self._run(dag_id, run_id)}/clear", body)

    def runs(self, dag_id: str) -> list[Json]:
        """The DAG's runs, by their dates."""
        found: list[Json] = self.get(f"/api/v2/dags/{dag_id}/dagRuns?order_by=run_after")[
            "dag_runs"
        ]
        return found

    def ended(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Wait for the run's end; the states of its tasks."""
        path = self._run(dag_id, run_id)
        self._until(f"the end of {dag_id} {run_id}", lambda: self.get(path)["state"] in ENDED)
        return {ti["task_id"]: ti["state"] for ti in self.tasks(dag_id, run_id)}

    def all_ended(self, dag_id: str, count: int, run_type: str = "backfill") -> list[Json]:
        """Wait until the DAG has so many runs of a type, all ended; those."""

        def check() -> list[Json]:
            found = [run for run in self.runs(dag_id) if run["run_type"] == run_type]
            done = [run for run in found if run["state"] in ENDED]
            return done if len(done) >= count and len(done) == len(found) else []

        found: list[Json] = self._until(f"the end of {count} runs of {dag_id}", check)
        return found

    def tasks(self, dag_id: str, run_id: str) -> list[Json]:
        """The run's task instances."""
        found: list[Json] = self.get(f"{self._run(dag_id, run_id)}/taskInstances")["task_instances"]
        return found

    def task_log(self, dag_id: str, run_id: str, task_id: str, attempt: int = 1) -> str:
        """What a try of a task has said."""
        path = f"{self._run(dag_id, run_id)}/taskInstances/{task_id}/logs/{attempt}"
        return json.dumps(self.get(f"{path}?full_content=true"))

    def links(self, dag_id: str, run_id: str, task_id: str) -> Json:
        """The extra links of a task, as the page of the task shows them."""
        path = f"{self._run(dag_id, run_id)}/taskInstances/{task_id}/links"
        found: Json = self.get(path)["extra_links"]
        return found

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """What a task has put into XCom."""
        path = f"{self._run(dag_id, run_id)}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.get(f"{path}?stringify=false")["value"]

    def _run(self, dag_id: str, run_id: str) -> str:
        return f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}"


def _settings(home: Path, port: int) -> dict[str, str]:
    url = f"http://127.0.0.1:{port}"
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{u}:{r}" for u, r in USERS.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        "AIRFLOW__FLUSS__CONSOLE_ACTIONS": "True",
        "AIRFLOW__FLUSS__CONSOLE_INTERVAL": "1",
        "XDG_CACHE_HOME": str(home / "cache"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__SECRET_KEY": "any",
        "AIRFLOW__API_AUTH__JWT_SECRET": "for tests on loopback only " * 3,
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "1",
        # DAGs are parsed when they appear and when they change, and not again.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        # A busy machine answers late.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
    }
