"""docs/cli.md shows what commands print: each one is run, in the order of the page."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import SCRIPT
from tests.docs.pages import ROOT, read_page
from tests.docs.running import check_syntax, commands, run_block

PAGE = "docs/cli.md"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty embedded directory, as a newcomer has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLUSS_BOOTSTRAP_SERVERS", f"embedded:{tmp_path / 'fluss'}")
    monkeypatch.setenv("WAREHOUSE", f"sqlite:///{tmp_path / 'warehouse.db'}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("FLUSS_PROFILE", "FLUSS_CHECKPOINT_STORE", "FLUSS_CLUSTER_ALIAS"):
        monkeypatch.delenv(name, raising=False)


def test_the_page_runs(tmp_path: Path) -> None:
    shown = 0
    for block in read_page(PAGE).blocks:
        check_syntax(block)
        if block.no_run is not None:
            continue
        if block.language == "bash" and "|" in block.code:
            path = f"{SCRIPT.parent}:{os.environ['PATH']}"
            subprocess.run(
                ["bash", "-ec", block.code],
                env={**os.environ, "PATH": path},
                check=True,
                capture_output=True,
            )
        else:
            run_block(block, {}, tmp_path)
        shown += len(commands(block)) if block.language == "console" else 0
    assert shown >= 30


def test_the_page_names_every_command() -> None:
    from fluss_orchestrate.cli.app import COMMANDS

    text = (ROOT / PAGE).read_text()
    assert [name for name in COMMANDS if name not in text] == []
