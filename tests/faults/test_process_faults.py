"""Processes that are stopped, starved of disk, or told another time."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client.backend.embedded.maintenance import check
from fluss_orchestrate import IncrementalScan, ParquetSink, SqlCheckpointStore
from fluss_orchestrate import run_increment as run_once
from tests.contract.tables import Tables, done
from tests.faults.ground import Ground
from tests.faults.programs import BATCH
from tests.faults.recording import FaultRecorder
from tests.waiting import let_pass

ROOT = Path(__file__).parents[2]
AT_ONCE = 4
KILLS_SHORT, KILLS_LONG = 4, 200
LIFE_S = 0.4
APART = 1_000_000


class Program:
    """One started program."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.programs", name, json.dumps(arguments)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", self.end()

    def end(self) -> tuple[list[str], str]:
        """Its whole lines, and its complaints."""
        output, complaints = self.process.communicate()
        return [
            line for line in output.splitlines(keepends=True) if line.endswith("\n")
        ], complaints


def killed(
    settings: dict[str, Any], path: str, how: signal.Signals, count: int, rng: random.Random
) -> Iterator[tuple[int, int, list[str], str]]:
    """Start writers, stop each at a random moment; gives first id, status, lines, complaints."""
    for group in range(0, count, AT_ONCE):
        numbers = range(group, min(group + AT_ONCE, count))
        started = [(n * APART, Program("write", settings, path, n * APART)) for n in numbers]
        for _, program in started:
            program.wait_ready()
        for first, program in started:
            let_pass(rng.uniform(0, LIFE_S), "a signal comes at any moment")
            program.process.send_signal(how)
            lines, complaints = program.end()
            yield first, program.process.returncode, lines, complaints


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_a_stopped_writer_loses_nothing_that_was_acknowledged(
    how: signal.Signals,
    ground: Ground,
    record_fault: FaultRecorder,
    fault_seed: int,
    long_form: bool,
) -> None:
    table = ground.tables.create({"id": pa.int64()}, buckets=3)
    settings = {"bootstrap.servers": ground.direct.config.bootstrap_servers}
    path = str(table.get_table_path())
    rng = random.Random(fault_seed)
    acknowledged: set[int] = set()
    count = KILLS_LONG if long_form else KILLS_SHORT
    for first, status, lines, complaints in killed(settings, path, how, count, rng):
        assert status == (143 if how is signal.SIGTERM else -how), complaints
        acknowledged |= set(range(first, int(lines[-1]) if lines else first + BATCH))
    found = Counter(ground.tables.log(table)["id"].to_pylist())
    record_fault(
        f"{how.name} of writers",
        count,
        lost=len(acknowledged - found.keys()),
        doubled=found.total() - len(found),
        seed=fault_seed,
    )
    if how is signal.SIGTERM:
        # An orderly exit flushes: what was handed over is there without a hole.
        for first in range(0, count * APART, APART):
            mine = sorted(i for i in found if first <= i < first + APART)
            assert mine == list(range(first, first + len(mine)))
            assert len(mine) % BATCH == 0


@pytest.mark.timeout(600)
def test_killed_scanners_leave_the_table_and_others_alone(
    ground: Ground, record_fault: FaultRecorder, fault_seed: int, long_form: bool
) -> None:
    settings = {"bootstrap.servers": ground.direct.config.bootstrap_servers}
    rng = random.Random(fault_seed)
    expected = ground.tables.log(ground.log)
    count = 40 if long_form else AT_ONCE
    for _ in range(0, count, AT_ONCE):
        started = [Program("scan", settings, str(ground.log_path)) for _ in range(AT_ONCE)]
        for program in started:
            program.wait_ready()
        for program in started:
            let_pass(rng.uniform(0, LIFE_S), "a signal comes at any moment")
            program.process.kill()
            program.end()
    assert ground.tables.log(ground.log).equals(expected)
    record_fault("kill -9 of scanners", count, seed=fault_seed)


@pytest.mark.parametrize("megabytes", [1, 3])
def test_a_full_disk_is_a_typed_error_and_spoils_nothing(
    megabytes: int, tmp_path: Path, record_fault: FaultRecorder
) -> None:
    folder = tmp_path / "d"
    settings = {"bootstrap.servers": f"embedded:{folder}", "retry-timeout": "2s"}
    schema = {"id": pa.int64(), "text": pa.string()}
    with done(fluss.FlussConnection.create(fluss.Config(settings))) as connection:
        admin = done(connection.get_admin())
        done(admin.create_database("d"))
        path = Tables(connection, admin, "d").create(schema).get_table_path()
    lines, complaints = Program("fill_disk", settings, str(path), megabytes << 20).end()
    *acknowledged, failure, closed = lines
    kind, message = json.loads(failure)
    assert kind.endswith("Error"), complaints
    assert "full" in message or "disk" in message or "space" in message, message
    assert json.loads(closed) == ["closed", True]
    count = int(acknowledged[-1]) if acknowledged else 0
    assert check(folder) == []
    with done(fluss.FlussConnection.create(fluss.Config(settings))) as connection:
        tables = Tables(connection, done(connection.get_admin()), "d")
        table = tables.open(path)
        tables.append(table, pa.table({"id": [-1], "text": ["after"]}))
        found = Counter(tables.log(table)["id"].to_pylist())
    assert found.pop(-1) == 1, "with room again, it goes on"
    record_fault(
        "disk full, embedded engine",
        1,
        lost=len(set(range(count)) - found.keys()),
        doubled=found.total() - len(found),
    )


STEPS_S = [3_600.0, -3_600.0, 86_400.0 * 3_650, -86_400.0 * 3_650, 0.5, -0.5]


@pytest.mark.parametrize("kind", ["embedded", "cluster"])
def test_a_clock_that_jumps_changes_no_rows(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_fault: FaultRecorder,
    fault_seed: int,
) -> None:
    """Deadlines count with a clock that cannot jump; plans and commits never ask the other one."""
    address = f"embedded:{tmp_path / 'd'}"
    if kind == "cluster":
        address = request.getfixturevalue("plain_cluster").info.bootstrap_servers
    rng = random.Random(fault_seed)
    real, shift = time.time_ns, 0.0
    monkeypatch.setattr(time, "time_ns", lambda: real() + int(shift * 1e9))
    monkeypatch.setattr(time, "time", lambda: real() / 1e9 + shift)
    with done(fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address}))) as made:
        admin = done(made.get_admin())
        database = f"clock_{rng.randrange(10**9)}_{time.monotonic_ns()}"
        done(admin.create_database(database))
        tables = Tables(made, admin, database)
        # The clock jumps further than the week after which rows are deleted by default.
        table = tables.create({"id": pa.int64()}, properties={"table.log.ttl": "36500d"})
        store = SqlCheckpointStore(f"sqlite:///{tmp_path / 'store'}")
        scan = IncrementalScan(made, str(table.get_table_path()), "clock", store)
        sink = ParquetSink(str(tmp_path / "sink"))
        rows = 0
        for number, step in enumerate(rng.sample(STEPS_S, len(STEPS_S))):
            tables.append(table, pa.table({"id": [number * 2]}))
            shift = step
            tables.append(table, pa.table({"id": [number * 2 + 1]}))
            rows += run_once(scan, sink, run_key=f"run-{number}").receipt.rows
        found = tables.records(table, 2 * len(STEPS_S))
        stamps = [record.timestamp for record in found]
        assert stamps == sorted(stamps), "commit times never go back"
        store.close()
        done(admin.drop_database(database, cascade=True))
    ids = Counter(int(record.row["id"]) for record in found)
    record_fault(
        f"clock steps ({kind})",
        len(STEPS_S),
        lost=2 * len(STEPS_S) - len(ids) + abs(rows - 2 * len(STEPS_S)),
        doubled=ids.total() - len(ids),
        seed=fault_seed,
    )
