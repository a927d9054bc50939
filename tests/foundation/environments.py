"""Making Python environments for tests, with uv and the pinned files of this repository."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASE = ("pyarrow", "protobuf", "numpy", "google-crc32c")


def uv(*arguments: str) -> None:
    """Run the uv of this environment; what it says is shown when it fails."""
    command = [sys.executable, "-m", "uv", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert answer.returncode == 0, answer.stderr


def make_environment(folder: Path, python: str = sys.executable) -> Path:
    """An empty environment; gives its interpreter."""
    uv("venv", "--quiet", "--no-project", "--python", python, str(folder))
    return folder / "bin" / "python"


def pinned(names: tuple[str, ...]) -> str:
    """The entries of requirements/dev.txt for these packages, hashes included."""
    text = (ROOT / "requirements" / "dev.txt").read_text()
    entries = re.findall(r"^\S.*(?:\n[ \t].*)*", text, re.MULTILINE)
    found = {re.split(r"[=\[ ]", entry)[0]: entry for entry in entries if "==" in entry}
    return "\n".join(found[name] for name in names) + "\n"


def versions() -> str:
    """Every pin of requirements/dev.txt as a constraint."""
    text = (ROOT / "requirements" / "dev.txt").read_text()
    return "\n".join(re.findall(r"^([a-z0-9][^\s;\\]*==[^\s;\\]+)", text, re.MULTILINE)) + "\n"
