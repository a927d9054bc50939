"""A bulk load whose spark-submit outlives the process that began it.

`start` runs this module as a process in a session of its own: the supervisor. It runs spark-submit,
and records in the cluster itself, under the name of the load, that it lives and how the job ended.
So whoever waits for the load can do so from any machine, and can ask for its end. The load itself
is exactly-once whatever happens here: a second spark-submit under its load id goes on with it.

    python -m fluss_orchestrate.core.spark_submit.detached FOLDER
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fluss_client import FlussConnection
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import async_connection, run_blocking
from fluss_client.errors import FlussError
from fluss_orchestrate.core.checkpoints.scheduler_state import SchedulerState
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.errors import SubmitError
from fluss_orchestrate.core.polling import on_its_loop
from fluss_orchestrate.core.spark_submit.job import ERROR_MARK, RECEIPT_MARK, failure
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec
from fluss_orchestrate.core.spark_submit.process import ProcessTree
from fluss_orchestrate.core.spark_submit.submit import RunningSubmit, SparkSubmit, SubmitResult

BEAT_S = 10.0
"""How often a supervisor records that it lives."""
LOST_S = 90.0
"""After so long without a new record, its machine or process is gone."""
START_TIMEOUT_S = 120.0
LAST_RECORD_ATTEMPTS_MAX = 60
TAIL_LINES_SHOWN = 20
JOB_FILE, LOG_FILE = "job.json", "supervisor.log"
PROGRESS_MARK = "fluss-orchestrate: "
RUNNING, DONE, FAILED, STOPPED = "running", "done", "failed", "stopped"


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """What the supervisor of a load has recorded last.

    Attributes:
        token: Names the supervisor.
        number: Grows with every record.
        phase: `running`, `done`, `failed` or `stopped`.
        said: The last line of progress.
        message: Why it failed.
        log_tail: The last lines of Spark's log, if it failed.
    """

    token: str
    number: int = 0
    phase: str = RUNNING
    said: str = ""
    message: str = ""
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DetachedJob:
    """What a supervisor is given: a command without secrets, which come by its environment."""

    command: tuple[str, ...]
    spec: str
    cluster: Mapping[str, Any]
    token: str
    master: str
    deploy_mode: str
    secret_names: tuple[str, ...] = ()

    @property
    def load(self) -> BulkLoadSpec:
        """The load."""
        return BulkLoadSpec.from_json(self.spec)


def _name(table: str, load_id: str) -> str:
    return f"load/{table}/{load_id}"


async def _read(core: AsyncConnection, table: str, load_id: str) -> LoadRecord | None:
    found = await SchedulerState(core).get(_name(table, load_id))
    if found is None:
        return None
    return LoadRecord(**{**found, "log_tail": tuple(found["log_tail"])})


def last_record(connection: FlussConnection, table: str, load_id: str) -> LoadRecord | None:
    """Return what the supervisor of a load has recorded last, or None. Blocks."""
    return run_blocking(_read(async_connection(connection), table, load_id))


async def alast_record(connection: FlussConnection, table: str, load_id: str) -> LoadRecord | None:
    """Return the same without blocking the event loop."""
    return await on_its_loop(connection, lambda core: _read(core, table, load_id))


def ask_to_stop(connection: FlussConnection, table: str, load_id: str, token: str) -> None:
    """Ask a supervisor to end its job; it looks every `BEAT_S`. Blocks."""
    state = SchedulerState(async_connection(connection))
    run_blocking(state.set(f"{_name(table, load_id)}/stop", token))


async def aask_to_stop(connection: FlussConnection, table: str, load_id: str, token: str) -> None:
    """Ask the same without blocking the event loop."""
    name = f"{_name(table, load_id)}/stop"
    await on_its_loop(connection, lambda core: SchedulerState(core).set(name, token))


def living(connection: FlussConnection, table: str, load_id: str) -> LoadRecord | None:
    """Return the record of a supervisor that is at work on a load; None if there is none.

    It is at work if it records something new while this waits. Blocks for up to two beats.
    """
    first = last_record(connection, table, load_id)
    if first is None or first.phase != RUNNING:
        return None
    give_up_at = time.monotonic() + 2 * BEAT_S
    while time.monotonic() < give_up_at:
        time.sleep(1.0)
        found = last_record(connection, table, load_id)
        if found is not None and found != first:
            return found if found.phase == RUNNING else None
    return None


def start(
    connection: FlussConnection, job: DetachedJob, folder: Path, environment: Mapping[str, str]
) -> int:
    """Start the supervisor of a job, and wait for its first record.

    Args:
        connection: The cluster.
        job: The job.
        folder: A folder that only this user can read; the supervisor removes it at the end.
        environment: The variables of the supervisor and of spark-submit.

    Returns:
        The process id of the supervisor.

    Raises:
        SubmitError: It did not begin.
    """
    path = folder / JOB_FILE
    path.touch(mode=0o600)
    path.write_text(json.dumps(asdict(job)))
    with (folder / LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    load = job.load
    give_up_at = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < give_up_at:
        found = last_record(connection, load.table, load.load_id)
        if found is not None and found.token == job.token:
            return process.pid
        if process.poll() is not None:
            break
        time.sleep(0.2)
    else:
        process.kill()
    said = (folder / LOG_FILE).read_text(errors="replace").splitlines()[-TAIL_LINES_SHOWN:]
    raise SubmitError(
        f"load {load.load_id} into {load.table}: the process that runs spark-submit did not begin: "
        f"{said[-1] if said else 'it said nothing'}",
        process.poll(),
        tuple(said),
    )


class Supervisor:
    """Runs the job of a folder, and records how it goes."""

    def __init__(self, job: DetachedJob) -> None:
        self._job = job
        self._load = job.load
        self._connection = ClusterRef.from_json(dict(job.cluster)).connection()
        secrets = {name: os.environ.get(name, "") for name in job.secret_names}
        self._how = SparkSubmit(master=job.master, deploy_mode=job.deploy_mode, secrets=secrets)
        self._record = LoadRecord(job.token)

    def run(self) -> int:
        """Run the job to its end, and return its exit code."""
        self._write(self._record)
        tree = ProcessTree(self._job.command, os.environ, self._hear)
        running = RunningSubmit(self._how, tree)
        while (code := tree.wait(BEAT_S)) is None:
            try:
                self._write(self._record)
                if self._is_asked_to_stop():
                    running.kill()
                    return self._end(STOPPED, 1, "it was told to stop")
            except FlussError as error:
                # The job goes on; who waits gives it up only after many missing records.
                print(f"the state of the load was not recorded: {error}", flush=True)
        tail = tuple(self._how.blotted(line) for line in tree.log_tail)
        if code == 0:
            return self._end(DONE, 0, "")
        why = failure(self._how, self._load, SubmitResult(None, code, tail)).message
        return self._end(FAILED, code, why, tail[-TAIL_LINES_SHOWN:])

    def _hear(self, line: str) -> None:
        shown = self._how.blotted(line)
        if PROGRESS_MARK in shown and RECEIPT_MARK not in shown and ERROR_MARK not in shown:
            self._record = replace(self._record, said=shown.partition(PROGRESS_MARK)[2])

    def _write(self, record: LoadRecord) -> None:
        """Record something under the next number."""
        self._record = replace(record, number=record.number + 1)
        name = _name(self._load.table, self._load.load_id)
        state = SchedulerState(async_connection(self._connection))
        run_blocking(state.set(name, asdict(self._record)))

    def _is_asked_to_stop(self) -> bool:
        name = f"{_name(self._load.table, self._load.load_id)}/stop"
        state = SchedulerState(async_connection(self._connection))
        return bool(run_blocking(state.get(name)) == self._job.token)

    def _end(self, phase: str, code: int, message: str, tail: Sequence[str] = ()) -> int:
        ended = replace(self._record, phase=phase, message=message, log_tail=tuple(tail))
        for _ in range(LAST_RECORD_ATTEMPTS_MAX):
            try:
                self._write(ended)
                break
            except FlussError as error:
                print(f"the end of the load was not recorded: {error}", flush=True)
                time.sleep(BEAT_S)
        return code


def main(arguments: Sequence[str]) -> int:
    """Run the job of a folder, and remove the folder."""
    folder = Path(arguments[0])
    try:
        found: dict[str, Any] = json.loads((folder / JOB_FILE).read_text())
        tuples = {name: tuple(found[name]) for name in ("command", "secret_names")}
        return Supervisor(DetachedJob(**{**found, **tuples})).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
