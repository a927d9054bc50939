"""The processes of a soak, started, killed and looked at."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.soak.journal import Journal
from tests.faults.soak.samples import Sample, Use, uses
from tests.waiting import scaled

ROOT = Path(__file__).parents[3]
END_S = 120.0


class Program:
    """A process with some roles; it may be killed and started again."""

    def __init__(self, folder: Path, roles: Sequence[str]) -> None:
        self.roles = list(roles)
        self.lives: list[list[Sample]] = []
        """What each process used, one after the other."""
        self.journals = [Journal(folder, role) for role in roles]
        self._folder = folder
        self._temporary = folder / f"tmp-{roles[0]}"
        self._temporary.mkdir()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """How it is called in figures."""
        return self.roles[0] if len(self.roles) == 1 else f"{self.roles[0]} and others"

    def start(self) -> None:
        """Start the process."""
        command = [sys.executable, "-m", "tests.faults.soak.programs", str(self._folder)]
        with (self._folder / f"{self.roles[0]}.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*command, *self.roles],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(self._temporary)},
                stdout=output,
                stderr=output,
            )
        self.lives.append([])

    def kill(self) -> None:
        """Kill the process; what it leaves behind stays for the next one."""
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} has ended by itself"
        self._process.kill()
        self._process.wait()

    def end(self) -> int:
        """Ask it to end, and return its status; one that does not end is killed."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(scaled(END_S))
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode

    def sample(self, at_s: float) -> None:
        """Look at what it uses."""
        if self._process is not None:
            found = Sample.take(at_s, self._process.pid, self._temporary)
            if found is not None:
                self.lives[-1].append(found)

    def progress(self) -> list[int]:
        """A number of each role that grows with its steps."""
        return [journal.progress() for journal in self.journals]

    def uses(self) -> list[Use]:
        """How its use of everything went in its longest life."""
        return uses(max(self.lives, key=lambda life: life[-1].at_s - life[0].at_s if life else 0))


class Sampler:
    """Looks at all processes again and again, on a thread of its own."""

    def __init__(self, programs: Sequence[Program], every_s: float) -> None:
        self._programs = programs
        self._every_s = every_s
        self._over = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            for program in self._programs:
                program.sample(time.monotonic() - self._began)
