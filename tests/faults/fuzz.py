"""`python -m tests.faults.fuzz SECONDS [TARGET]`: coverage-guided fuzzing of every reader.

One process feeds all targets (or the one named), the first byte of an input choosing it; libFuzzer
keeps what reaches new code of ours. What it finds goes, target by target, into `corpus/`, which
every later run and the tests start from. Exits with 77 when a reader neither read nor refused.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fluss_client", "fluss_orchestrate"]):
    from tests.faults.fuzz_targets import TARGETS, folder_of

INPUT_BYTES_MAX = 4096
MEMORY_MB_MAX = 2048
INPUT_SECONDS_MAX = 30


def fuzz(seconds: int, names: list[str]) -> None:
    """Feed the targets for so long; does not return."""
    chosen = [TARGETS[name] for name in names]

    def feed(data: bytes) -> None:
        if not data:
            return
        at = data[0] % len(chosen)
        try:
            chosen[at](data[1:])
        except BaseException:
            keep(names[at], data[1:])
            raise

    with tempfile.TemporaryDirectory(prefix="fluss-fuzz-") as folder:
        for at, name in enumerate(names):
            for number, seed in enumerate([*chosen[at].seeds, *kept(name)]):
                (Path(folder) / f"{at}-{number}").write_bytes(bytes([at]) + seed)
        limits = [
            f"-max_total_time={seconds}",
            f"-max_len={INPUT_BYTES_MAX}",
            f"-rss_limit_mb={MEMORY_MB_MAX}",
            f"-timeout={INPUT_SECONDS_MAX}",
            f"-artifact_prefix={folder}/",
            "-seed=20261117",
            "-print_final_stats=1",
        ]
        atheris.Setup([sys.argv[0], *limits, folder], feed)
        atheris.Fuzz()


def kept(name: str) -> list[bytes]:
    """Inputs that broke a target once."""
    return [path.read_bytes() for path in sorted(folder_of(name).glob("*.bin"))]


def keep(name: str, data: bytes) -> Path:
    """Write an input down for ever."""
    path = folder_of(name) / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    fuzz(int(sys.argv[1]), sys.argv[2:] or sorted(TARGETS))
