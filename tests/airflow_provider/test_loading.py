"""Triggers that start at once import what they need at once."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, sys
from fluss_orchestrate.airflow.hooks import loaded

MODULES = ["fluss_orchestrate.core.conditions", "fluss_client.errors", "fluss_orchestrate.core"]

async def main():
    return await asyncio.gather(*(loaded(name) for name in MODULES * 2))

sys.setswitchinterval(1e-6)  # Threads take turns as often as they can.
print(*(module.__name__ for module in asyncio.run(main())))
"""


def test_modules_of_one_package_are_loaded_whole_by_many_at_once() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split().count("fluss_client.errors") == 2
