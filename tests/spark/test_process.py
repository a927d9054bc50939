"""Commands with all that they start: heard to the end, and ended together."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fluss_client.errors import ConfigError
from fluss_orchestrate.core.errors import SparkSetupError, SubmitError
from fluss_orchestrate.core.spark_submit.environment import (
    check_pyspark,
    find_spark_submit,
    zip_packages,
)
from fluss_orchestrate.core.spark_submit.process import ProcessTree, session_members
from fluss_orchestrate.core.spark_submit.submit import RunningSubmit, SparkSubmit
from tests.waiting import wait_until

# A child that leaves the process group, as Spark's Python workers do, and ignores SIGTERM.
STUBBORN = textwrap.dedent(
    """
    import os, signal, sys, time
    if os.fork() == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("child ready", flush=True)
        time.sleep(600)
    time.sleep(600)
    """
)


def test_everything_that_was_started_is_killed() -> None:
    lines: list[str] = []
    tree = ProcessTree([sys.executable, "-c", STUBBORN], os.environ, lines.append)
    wait_until("the child", lambda: "child ready" in lines)
    assert len(session_members(tree.pid)) == 2
    tree.kill(grace_s=0.2)
    assert session_members(tree.pid) == []
    tree.kill()


def test_a_callers_error_while_it_listens_is_raised() -> None:
    def refuse(line: str) -> None:
        raise ValueError(line)

    tree = ProcessTree(["/bin/sh", "-c", "echo hello; sleep 0.1"], os.environ, refuse)
    with pytest.raises(ValueError, match="hello"):
        tree.wait()
    tree.kill()


def script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "submit"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_a_submit_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    submit = SparkSubmit(spark_submit=script(tmp_path, "echo begun; sleep 600"))
    started: list[RunningSubmit] = []
    with pytest.raises(SubmitError, match=r"job\.py to local\[\*\] did not end within 0.5 s"):
        submit.run("job.py", on_started=started.append, timeout_s=0.5)
    assert session_members(started[0].pid) == []


def test_sigterm_in_the_caller_ends_the_job(tmp_path: Path) -> None:
    """Python ends at SIGTERM without unwinding; the job must not stay behind."""
    program = f"""
from fluss_orchestrate.core.spark_submit.submit import SparkSubmit
submit = SparkSubmit(spark_submit={script(tmp_path, "echo begun; sleep 600")!r})
submit.run("job.py", on_started=lambda job: print(job.pid, flush=True))
"""
    caller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    session = int(caller.stdout.readline())
    wait_until("the job", lambda: session_members(session))
    caller.send_signal(signal.SIGTERM)
    assert caller.wait() == -signal.SIGTERM
    caller.stdout.close()
    assert session_members(session) == []


def test_the_application_id_and_the_exit_code_come_back(tmp_path: Path) -> None:
    body = 'echo "as app-20260101000000-0001"; echo "pw is $PW"; exit 3'
    submit = SparkSubmit(spark_submit=script(tmp_path, body), secrets={"PW": "hunter-2"})
    result = submit.run("job.py", ["--x"])
    assert (result.application_id, result.exit_code) == ("app-20260101000000-0001", 3)
    assert result.log_tail[-1] == "pw is ******"


def test_the_command_is_a_list_without_secrets() -> None:
    submit = SparkSubmit(
        master="spark://127.0.0.1:7077",
        conf={"spark.a": "1; rm -rf /"},
        env={"REGION": "eu"},
        secrets={"FLUSS_CLUSTER_PROD_SECURITY_SASL_PASSWORD": "hunter-2"},
        py_files=("more.zip",),
        python="/usr/bin/python3",
        extra_arguments=("--queue", "etl"),
    )
    command = submit.command("job.py", ["--spec", "{}"])
    assert command[-5:] == ["--queue", "etl", "job.py", "--spec", "{}"]
    assert "spark.a=1; rm -rf /" in command
    assert "spark.executorEnv.REGION=eu" in command
    assert "spark.pyspark.python=/usr/bin/python3" in command
    assert not any("hunter-2" in argument for argument in command)
    assert "hunter-2" not in repr(submit)
    with pytest.raises(ConfigError, match="never pickled"):
        pickle.dumps(submit)
    assert pickle.loads(pickle.dumps(SparkSubmit("local[2]"))) == SparkSubmit("local[2]")


def test_the_secrets_file_is_for_its_owner_only(tmp_path: Path) -> None:
    secrets = {"PW": "a\\b=ü\nc", "P2": " x"}
    submit = SparkSubmit("yarn", "cluster", secrets=secrets)
    path = submit._secret_file(tmp_path)
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600
    lines = path.read_text("ascii").splitlines()
    assert "spark.executorEnv.PW=a\\\\b=\\u00fc\\nc" in lines
    assert "spark.yarn.appMasterEnv.P2=\\ x" in lines


def test_drivers_elsewhere_are_killed_by_name() -> None:
    yarn = SparkSubmit("yarn", "cluster")
    assert yarn.kill_command("application_1_2", None) == [
        "yarn",
        "application",
        "-kill",
        "application_1_2",
    ]
    pods = SparkSubmit("k8s://https://host:443", "cluster")
    command = pods.kill_command(None, "load-1-driver")
    assert command is not None
    assert command[1:] == ["--master", "k8s://https://host:443", "--kill", "load-1-driver"]
    assert SparkSubmit("yarn").kill_command("application_1_2", None) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"master": "sparkk://x"}, "no Spark master"),
        ({"deploy_mode": "remote"}, "client or cluster"),
        ({"master": "spark://x:7077", "deploy_mode": "cluster"}, "no Python driver in cluster"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SparkSubmit(**settings)  # type: ignore[arg-type]


def test_no_spark_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SparkSetupError, match=r"pip install 'fluss-orchestrate\[spark\]'"):
        find_spark_submit(str(tmp_path / "spark-submit"))


def test_pyspark_is_whole_here_and_a_mix_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    check_pyspark()
    real = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda n: "4.2.0" if n == "pyspark-client" else real(n)
    )
    with pytest.raises(SparkSetupError, match="overwrite each other"):
        check_pyspark()


def test_our_packages_import_from_their_zip(tmp_path: Path) -> None:
    archive = str(zip_packages(tmp_path))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import fluss_client, fluss_orchestrate.spark.loading.task as task\n"
        "assert '.zip' in task.__file__ and '.zip' in fluss_client.__file__"
    )
    subprocess.run([sys.executable, "-c", program, archive], check=True, cwd=tmp_path)
