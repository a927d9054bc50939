"""At a real terminal: questions are asked, bars move, and standard output stays clean."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fluss_orchestrate.cli.presentation.progress import LineMeter, metered
from tests.cli.conftest import Shop
from tests.cli.running import SCRIPT


def at_terminal(shop: Shop, *arguments: str, typed: str = "") -> tuple[int, str, str]:
    """Run the script with a terminal for input and errors; exit code, output, what it showed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(SCRIPT), *arguments, "--bootstrap", shop.address],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = bytearray()
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    assert process.stdout is not None
    output = process.stdout.read().decode()
    process.stdout.close()
    os.close(ours)
    return process.wait(), output, shown.decode()


def test_a_question_and_its_answers(local_shop: Shop) -> None:
    cli = local_shop.cli
    cli("databases", "create", "doomed")
    code, output, shown = at_terminal(local_shop, "databases", "drop", "doomed", typed="n\n")
    assert (code, output) == (1, "")
    assert "This will drop database doomed. Go on? [y/N]" in shown
    assert "error: nothing was done" in shown
    code, output, shown = at_terminal(local_shop, "databases", "drop", "doomed", typed="y\n")
    assert (code, output) == (0, "dropped doomed\n")
    assert "doomed" not in [d["database"] for d in cli.json("databases", "ls")]


def test_a_bar(local_shop: Shop) -> None:
    rows = "event_id,name,at\n" + "".join(f"{n},n{n},\n" for n in range(1_000))
    file = local_shop.file("many.csv", rows)
    code, output, shown = at_terminal(local_shop, "write", local_shop.events, file)
    assert (code, output) == (0, "append: 1,000 rows\n")
    assert "━" in shown
    assert "1,000 rows" in shown
    assert "rows/s" in shown


def test_plain_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("fluss_orchestrate.cli.presentation.progress.LINE_INTERVAL_S", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    now_s = 100.0
    monkeypatch.setattr(
        "fluss_orchestrate.cli.presentation.progress.time",
        SimpleNamespace(monotonic=lambda: now_s),
    )
    with metered("reading", 100) as meter:
        assert isinstance(meter, LineMeter)
        now_s += 10
        meter.at(50, 50, 100)
        meter.add(50, 50)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "reading: 50 rows, 5 rows/s, 10 s left"
    assert lines[-1].startswith("reading: 100 rows in 10.0 s")
    with pytest.raises(ZeroDivisionError), metered("reading"):
        raise ZeroDivisionError
    assert capsys.readouterr().err == ""


def test_watching_at_a_terminal(local_shop: Shop, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [str(SCRIPT), "status", "--watch", "--times", "2", "--interval", "0.1"]
    process = subprocess.Popen(
        [*command, "--bootstrap", local_shop.address],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )
    os.close(theirs)
    shown = bytearray()
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            break
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    os.close(ours)
    assert process.wait() == 0
    assert local_shop.events in shown.decode()
    assert "\x1b[" in shown.decode()
