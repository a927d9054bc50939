"""Real spark-submits: on a standalone master and worker with SASL, killed, and misdirected."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import Config, FlussConnection
from fluss_client.testing import LocalCluster
from fluss_orchestrate import read_table
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.spark.errors import SubmitError
from fluss_orchestrate.spark.job import ERROR_MARK, explain, job_arguments, submit_load
from fluss_orchestrate.spark.load_spec import BulkLoadSpec, LoadSource
from fluss_orchestrate.spark.process import session_members
from fluss_orchestrate.spark.submit import RunningSubmit, SparkSubmit
from tests.spark.conftest import CPU_QUIET
from tests.spark.standalone import Standalone

_numbers = itertools.count()
COLUMNS = {"id": "bigint not null", "word": "string"}


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
    with FlussConnection.create(config).result(60) as made:
        yield made


@pytest.fixture
def database(connection: FlussConnection) -> Iterator[str]:
    name = f"submit_{os.getpid()}_{next(_numbers)}"
    yield name
    admin = connection.get_admin().result(30)
    admin.drop_database(name, ignore_if_not_exists=True, cascade=True).result(60)


def input_files(folder: Path, files: int = 2, rows: int = 3000) -> list[str]:
    folder.mkdir()
    for number in range(files):
        ids = list(range(number * rows, (number + 1) * rows))
        table = pa.table({"id": ids, "word": [f"w{i}" for i in ids]})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=500)
    return [str(folder)]


def spec_of(paths: list[str], database: str, load_id: str) -> BulkLoadSpec:
    return BulkLoadSpec(
        LoadSource("parquet", paths),
        f"{database}.rows",
        load_id,
        provision={"columns": COLUMNS, "buckets": 2},
        batch_bytes=4096,
    )


@pytest.mark.timeout(300)
def test_a_standalone_cluster_loads_with_a_password_that_nobody_sees(
    spark_cluster: Standalone,
    config: Config,
    connection: FlussConnection,
    database: str,
    tmp_path: Path,
) -> None:
    """Our packages and the password reach the executors; no argument, log or event log has it."""
    events = tmp_path / "events"
    events.mkdir()
    arguments: set[str] = set()
    lines: list[str] = []

    def started(job: RunningSubmit) -> None:
        seen.append(job)

    def listen(line: str) -> None:
        lines.append(line)
        for pid in session_members(seen[0].pid) if seen else []:
            try:
                arguments.add(Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))
            except OSError:
                continue

    seen: list[RunningSubmit] = []
    submit = SparkSubmit(
        spark_cluster.master,
        conf={
            **CPU_QUIET,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{events}",
            "spark.executor.memory": "512m",
        },
    )
    spec = spec_of(input_files(tmp_path / "in"), database, f"{database}-load")
    receipt = submit_load(submit, spec, config, on_log=listen, on_started=started)
    assert receipt.rows == 6000
    rows = read_table(connection, f"{database}.rows").read_all()
    assert sorted(rows.column("id").to_pylist()) == list(range(6000))
    assert re.fullmatch(r"app-\d+-\d+", seen[0].application_id or "")
    assert session_members(seen[0].pid) == []

    password = config.security_sasl_password
    assert arguments
    assert not [a for a in arguments if password in a]
    assert not [line for line in lines if password in line]
    places = (tmp_path, spark_cluster.folder)
    written = [p for at in places for p in at.rglob("*") if p.is_file() and p.suffix != ".parquet"]
    assert any(p.is_relative_to(events) for p in written), "the event log is among them"
    assert not [p for p in written if password.encode() in p.read_bytes()]


@pytest.mark.long
def test_killing_a_submit_leaves_no_process(tmp_path: Path) -> None:
    """A real driver with Python workers that sleep."""
    job = tmp_path / "sleeps.py"
    job.write_text(
        "import time\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "def sleep(_):\n"
        "    open(MARK, 'w').close()\n"
        "    time.sleep(600)\n"
        "spark.sparkContext.parallelize([1], 1).foreach(sleep)\n".replace(
            "MARK", repr(str(tmp_path / "working"))
        )
    )
    submit = SparkSubmit("local[1]", conf=CPU_QUIET)
    running: list[RunningSubmit] = []

    def stop_when_working(job: RunningSubmit) -> None:
        running.append(job)
        give_up_at = time.monotonic() + 60
        while not (tmp_path / "working").exists() and time.monotonic() < give_up_at:
            time.sleep(0.05)
        assert len(session_members(job.pid)) >= 3
        raise InterruptedError

    with pytest.raises(InterruptedError):
        submit.run(str(job), on_started=stop_when_working)
    assert session_members(running[0].pid) == []


@pytest.mark.long
def test_a_submit_that_fails_says_why_in_one_sentence(tmp_path: Path) -> None:
    """No such table, seen by the driver, and one line of it in the error."""
    source = LoadSource("parquet", input_files(tmp_path / "in", 1, 10))
    spec = BulkLoadSpec(source, "nowhere.rows", "x")
    config = Config({"bootstrap.servers": f"embedded:{tmp_path / 'engine'}"})
    said = r"load x into nowhere\.rows on local\[1\]: .*nowhere"
    with pytest.raises(SubmitError, match=said) as caught:
        submit_load(SparkSubmit("local[1]", conf=CPU_QUIET), spec, config)
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)


def test_a_job_without_a_table_ends_before_spark_starts(tmp_path: Path) -> None:
    spec = BulkLoadSpec(LoadSource("parquet", [str(tmp_path)]), "nowhere.rows", "x")
    cluster = ClusterRef(properties={"bootstrap.servers": f"embedded:{tmp_path / 'engine'}"})
    command = [sys.executable, "-m", "fluss_orchestrate.spark.bulk_load"]
    ended = subprocess.run(
        [*command, *job_arguments(spec, cluster)], capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert "nowhere" in explain(ended.stdout.splitlines())
    assert "Traceback" not in ended.stdout + ended.stderr


def test_the_telling_line_of_a_log_is_found() -> None:
    log = ["INFO a", "java.net.ConnectException: no route to master", "\tat x", ""]
    assert explain(log) == "spark-submit failed: java.net.ConnectException: no route to master"
    assert explain(["x", f"{ERROR_MARK}the table is gone", "bye"]) == "the table is gone"
    assert explain([]) == "spark-submit failed: it said nothing"
