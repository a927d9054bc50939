"""Real spark-submits: killed, and misdirected; test_crashes has those on a standalone cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import Config
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.errors import SubmitError
from fluss_orchestrate.core.spark_submit.job import ERROR_MARK, explain, job_arguments, submit_load
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource
from fluss_orchestrate.core.spark_submit.process import session_members
from fluss_orchestrate.core.spark_submit.submit import RunningSubmit, SparkSubmit
from tests.spark.conftest import CPU_QUIET
from tests.waiting import wait_until


def input_files(folder: Path, files: int = 2, rows: int = 3000) -> list[str]:
    folder.mkdir()
    for number in range(files):
        ids = list(range(number * rows, (number + 1) * rows))
        table = pa.table({"id": ids, "word": [f"w{i}" for i in ids]})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=500)
    return [str(folder)]


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
        wait_until("the Python worker", (tmp_path / "working").exists)
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
