"""A recorded process is the one that was started, or nobody."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fluss_client.testing import processes
from fluss_client.testing.processes import ProcessMark, process_start, spawn
from tests.waiting import wait_until


@pytest.fixture
def sleeper(tmp_path: Path) -> ProcessMark:
    """A process that would run for minutes."""
    code = "import time; print('on', flush=True); time.sleep(600)"
    return _started([sys.executable, "-c", code], tmp_path)


def _started(command: list[str], folder: Path) -> ProcessMark:
    mark = spawn(command, folder, folder / "out")
    wait_until("its output", lambda: not mark.is_alive() or "on" in (folder / "out").read_text())
    return mark


def test_a_process_is_known_until_it_ends(sleeper: ProcessMark) -> None:
    assert sleeper.is_alive()
    assert os.getsid(sleeper.pid) == sleeper.pid, "Ctrl-C here must not reach it"
    sleeper.terminate("sleeper")
    assert not sleeper.is_alive()
    sleeper.terminate("sleeper")
    sleeper.kill("sleeper")


def test_a_reused_pid_is_not_our_process_and_gets_no_signal(sleeper: ProcessMark) -> None:
    stale = ProcessMark(sleeper.pid, "another start")
    assert not stale.is_alive()
    stale.terminate("stale")
    stale.kill("stale")
    assert sleeper.is_alive()
    sleeper.kill("sleeper")
    assert not sleeper.is_alive()


def test_one_that_does_not_listen_is_killed_after_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import signal; signal.signal(15, signal.SIG_IGN); print('on', flush=True)"
    deaf = _started([sys.executable, "-c", f"{code}; signal.pause()"], tmp_path)
    monkeypatch.setattr(processes, "STOP_DEADLINE_S", 0.2)
    deaf.terminate("deaf")
    assert not deaf.is_alive()


def test_one_that_ended_by_itself_is_over_though_nobody_waited_for_it(tmp_path: Path) -> None:
    mark = _started([sys.executable, "-c", "print('off')"], tmp_path)
    assert mark.started
    assert not mark.is_alive()


def test_without_proc_the_start_comes_from_ps() -> None:
    assert process_start(os.getpid())
    started = processes._start_by_ps(os.getpid())
    assert started
    assert started == processes._start_by_ps(os.getpid())
    assert processes._start_by_ps(2**22 + 1) is None
