"""Programs of the compose file, started on this machine and ended by their process ids."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from tests.waiting import scaled, wait_until

BIN = Path(sys.executable).parent
READY_LIMIT_S = 240.0


@contextlib.contextmanager
def started(
    name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> Iterator[Path]:
    """A program of this environment, with only the given variables; its log."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            cwd=folder,
            env={"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder), **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program with all that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        tree = psutil.Process(process.pid)
        family = [*tree.children(recursive=True), tree]
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.terminate()
        _, alive = psutil.wait_procs(family, timeout=scaled(20))
        for member in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
    process.wait()


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> str:
    """A program that ends, and ends well; what it prints."""
    ended = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=folder,
        env={"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def wait_ready(what: str, holds: Callable[[], bool], logs: Sequence[Path]) -> None:
    """Ask until it holds; the ends of the logs if it does not."""

    def tails() -> str:
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-2000:]}" for log in logs)

    wait_until(what, holds, READY_LIMIT_S, pause_s=0.5, details=tails)
