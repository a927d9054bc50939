"""Loads on a real standalone cluster with everything killed that can be: each row once.

They log in with a password, which must reach the executors and be seen nowhere.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import Config, FlussConnection
from fluss_client.testing import LocalCluster
from fluss_orchestrate import Receipt, read_table
from fluss_orchestrate.core.errors import SubmitError
from fluss_orchestrate.core.spark_submit.job import submit_load
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource
from fluss_orchestrate.core.spark_submit.process import session_members
from fluss_orchestrate.core.spark_submit.submit import RunningSubmit, SparkSubmit
from tests.faults.recording import FaultRecorder
from tests.spark.conftest import CPU_QUIET
from tests.spark.standalone import Standalone
from tests.waiting import let_pass, scaled

CONF = {
    **CPU_QUIET,
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "50",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.excludeOnFailure.enabled": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "0ms",
}
ATTEMPTS_MAX = 12
LONG_ROWS = int(os.environ.get("FLUSS_TEST_CRASH_ROWS", "5000000"))
"""Rows of each of the ten loads of the long form; fewer for a slow machine."""
LONG_FILES = 20
KILL_EVERY_S = 3.0


class Killer:
    """Kills Python workers and executors at random while it runs."""

    def __init__(self, cluster: Standalone, every_s: float, kills_max: int, seed: int) -> None:
        self._cluster = cluster
        self._kills_max = kills_max
        self._every_s = every_s
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self.killed = 0

    def __enter__(self) -> Killer:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while self.killed < self._kills_max:
            if self._stop.wait(self._every_s * self._random.uniform(0.5, 1.5)):
                return
            whole = self._random.random() < 0.2
            alive = self._cluster.executors() if whole else self._cluster.python_workers()
            if alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._random.choice(alive).kill()
                    self.killed += 1


class Watch:
    """What anybody on this machine could see of a submit: its log, and all process arguments."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arguments: set[str] = set()
        self.jobs: list[RunningSubmit] = []

    def hear(self, line: str) -> None:
        self.lines.append(line)
        for pid in session_members(self.jobs[-1].pid) if self.jobs else []:
            with contextlib.suppress(OSError):
                self.arguments.add(Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))

    def sees(self, secret: str, *folders: Path) -> list[str]:
        """Where a secret shows: in the log, in arguments, or in a file below the folders."""
        found = [text for text in (*self.lines, *self.arguments) if secret in text]
        files = [p for folder in folders for p in folder.rglob("*") if p.is_file()]
        return found + [str(p) for p in files if secret.encode() in p.read_bytes()]


def write_input(folder: Path, files: int, rows: int) -> None:
    folder.mkdir()
    for number in range(files):
        ids = np.arange(number * rows, (number + 1) * rows)
        words = pa.array(np.char.add("w", (ids % 1000).astype(str)))
        table = pa.table({"id": ids, "word": words})
        pq.write_table(table, folder / f"{number:03}.parquet", row_group_size=max(1, rows // 4))


def load_until_done(
    submit: SparkSubmit,
    spec: BulkLoadSpec,
    config: Config,
    driver_kills: int,
    seed: int,
    watch: Watch,
) -> tuple[Receipt, int]:
    """The receipt, after the driver was killed some times; and how often it was submitted."""
    chance = random.Random(seed)
    for attempt in range(ATTEMPTS_MAX):
        begun = threading.Event()

        def listen(line: str, begun: threading.Event = begun) -> None:
            watch.hear(line)
            if "units in" in line:
                begun.set()

        def assassin(begun: threading.Event = begun) -> None:
            if begun.wait(scaled(90)):
                let_pass(chance.uniform(0.0, 3.0), "a kill comes at any moment")
                watch.jobs[-1].kill(grace_s=0)

        if attempt < driver_kills:
            threading.Thread(target=assassin, daemon=True).start()
        try:
            started = watch.jobs.append
            receipt = submit_load(submit, spec, config, on_log=listen, on_started=started)
            return receipt, attempt + 1
        except SubmitError:
            if attempt >= driver_kills:
                raise
            assert session_members(watch.jobs[-1].pid) == [], "a kill leaves nothing behind"
    raise AssertionError(f"not done after {ATTEMPTS_MAX} attempts")


@pytest.fixture
def config(plain_cluster: LocalCluster) -> Config:
    """The way in by SASL, with a password."""
    info = plain_cluster.info
    user, password = next(iter(info.users.items()))
    return Config(
        {
            "bootstrap.servers": info.sasl_bootstrap_servers,
            "cluster.alias": "sasl-cluster",
            "security.protocol": "sasl",
            "security.sasl.username": user,
            "security.sasl.password": password,
        }
    )


@pytest.fixture
def connection(config: Config) -> Iterator[FlussConnection]:
    with FlussConnection.create(config).result() as made:
        yield made


@pytest.fixture
def database(connection: FlussConnection) -> Iterator[str]:
    name = f"crash_{os.getpid()}_{random.randrange(10**9)}"
    yield name
    admin = connection.get_admin().result()
    admin.drop_database(name, ignore_if_not_exists=True, cascade=True).result()


def check(connection: FlussConnection, table: str, rows: int) -> None:
    ids = read_table(connection, table, ["id"]).read_all().column("id").to_numpy()
    assert len(ids) == rows
    assert np.array_equal(np.sort(ids), np.arange(rows))


def run(
    spark_cluster: Standalone,
    connection: FlussConnection,
    config: Config,
    database: str,
    folder: Path,
    rows: int,
    *,
    keyed: bool,
    driver_kills: int,
    kills_max: int,
    seed: int,
    conf: dict[str, str] | None = None,
    watch: Watch | None = None,
) -> int:
    columns = {"id": "bigint not null", "word": "string"}
    provision: dict[str, object] = {"columns": columns, "buckets": 3}
    if keyed:
        provision["primary_key"] = ["id"]
    table = f"{database}.{'keys' if keyed else 'log'}{seed}"
    spec = BulkLoadSpec(
        LoadSource("parquet", [str(folder)]),
        table,
        f"{table}-load",
        provision=provision,
        batch_bytes=1 << 16 if rows < 1_000_000 else 1 << 20,
    )
    submit = SparkSubmit(spark_cluster.master, conf={**CONF, **(conf or {})})
    watch = watch or Watch()
    with Killer(spark_cluster, KILL_EVERY_S, kills_max, seed) as killer:
        receipt, attempts = load_until_done(submit, spec, config, driver_kills, seed, watch)
    assert receipt.rows == rows
    check(connection, table, rows)
    return killer.killed + attempts - 1


@pytest.mark.timeout(400)
def test_a_load_through_kills(
    spark_cluster: Standalone,
    connection: FlussConnection,
    config: Config,
    database: str,
    tmp_path: Path,
    record_fault: FaultRecorder,
) -> None:
    """The driver is killed once and a worker once; speculation is on.

    Our packages and the password reach the executors; no argument, log or event log has it.
    """
    write_input(tmp_path / "in", 6, 20_000)
    events = tmp_path / "events"
    events.mkdir()
    watch = Watch()
    kills = run(
        spark_cluster,
        connection,
        config,
        database,
        tmp_path / "in",
        120_000,
        keyed=False,
        driver_kills=1,
        kills_max=1,
        seed=1,
        conf={"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{events}"},
        watch=watch,
    )
    record_fault("kill -9 of a Spark driver and workers, bulk load", kills, seed=1)
    assert re.fullmatch(r"app-\d+-\d+", watch.jobs[-1].application_id or "")
    assert session_members(watch.jobs[-1].pid) == []
    assert watch.arguments
    assert any(path.is_file() for path in events.rglob("*"))
    assert watch.sees(config.security_sasl_password, tmp_path, spark_cluster.folder) == []
    assert watch.sees("sasl-cluster"), "what does travel is found like this"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("keyed", [False, True], ids=["log", "keys"])
def test_five_million_rows_ten_times_over(
    spark_cluster: Standalone,
    connection: FlussConnection,
    config: Config,
    database: str,
    tmp_path: Path,
    keyed: bool,
    record_fault: FaultRecorder,
) -> None:
    write_input(tmp_path / "in", LONG_FILES, LONG_ROWS // LONG_FILES)
    kills = 0
    for seed in range(10):
        begun = time.monotonic()
        killed = run(
            spark_cluster,
            connection,
            config,
            database,
            tmp_path / "in",
            LONG_ROWS // LONG_FILES * LONG_FILES,
            keyed=keyed,
            driver_kills=seed % 3,
            kills_max=6,
            seed=seed,
        )
        kills += killed
        print(f"seed {seed}: {killed} kills, {time.monotonic() - begun:.0f} s", flush=True)
    what = "key table" if keyed else "log table"
    record_fault(f"kill -9 of Spark drivers and workers, ten bulk loads ({what})", kills, seed=0)
    assert kills >= 10
