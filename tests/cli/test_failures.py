"""Dead servers, full disks, missing rights, closed pipes, bugs: a sentence, never a traceback."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client.testing.launching import pick
from fluss_orchestrate.cli.commands import tables
from fluss_orchestrate.cli.presentation.failures import report, sentence
from tests.cli.conftest import Shop
from tests.cli.running import SCRIPT, Cli
from tests.waiting import within

AT_ONCE_S = 60
"""For a command that does not retry; retries would go on for two minutes."""


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    return f"127.0.0.1:{pick(set())}"


def test_a_dead_server(tmp_path: Path, nobody: str) -> None:
    cli = Cli(tmp_path, nobody)
    for command in (
        ["databases", "ls"],
        ["tables", "ls"],
        ["partitions", "ls", "a.b"],
        ["offsets", "a.b"],
        ["read", "a.b"],
        ["write", "a.b", "-", "--format", "csv"],
        ["lookup", "a.b", "1"],
        ["scan", "a.b", "--checkpoint", "x"],
        ["checkpoints", "ls"],
        ["lake", "status", "a.b"],
        ["status"],
    ):
        said = cli.fails(*command)
        assert f"cannot connect to {nobody}" in said
        assert "Is the cluster up" in said


def limit_files(size: int) -> Callable[[], None]:
    """In the child: no file may grow beyond so many bytes, as if the disk were full."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk(local_shop: Shop, tmp_path: Path) -> None:
    cli, table = local_shop.cli, f"{local_shop.database}.noise"
    spec = f"tables:\n  - table: {table}\n    columns: {{noise: string}}\n    buckets: 1\n"
    cli("tables", "apply", local_shop.file("noise.yaml", spec))
    rows = pa.table({"noise": [os.urandom(500).hex() for _ in range(2_000)]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    cli("write", table, str(tmp_path / "rows.parquet"))
    cli("embedded", "vacuum", str(local_shop.folder / "fluss"))
    out = tmp_path / "out" / "rows.csv"
    out.parent.mkdir()
    done = cli.script(
        "read", table, "--source", "log", "--to", str(out), preexec_fn=limit_files(500_000)
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no room left to write" in done.stderr
    assert str(out) in done.stderr
    assert "Traceback" not in done.stderr
    assert list(out.parent.iterdir()) == []
    said = cli.fails("read", table, "--to", "/dev/full", "--format", "csv")
    assert said.startswith("/dev/full: there is no room left to write")
    assert Path("/dev/full").is_char_device()
    with open("/dev/full", "w") as full:
        command = [str(SCRIPT), "tables", "ls", "-b", local_shop.address]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no room left to write")
    assert len(done.stderr.splitlines()) == 1


def test_a_full_disk_below_the_engine(tmp_path: Path) -> None:
    cli = Cli(tmp_path, f"embedded:{tmp_path / 'fluss'}")
    spec = tmp_path / "t.yaml"
    spec.write_text("tables:\n  - table: d.t\n    columns: {noise: string}\n    buckets: 1\n")
    cli("tables", "apply", str(spec))
    few, many = tmp_path / "few.csv", tmp_path / "many.csv"
    few.write_text("noise\nquiet\n")
    many.write_text("noise\n" + "".join(f"{os.urandom(500).hex()}\n" for _ in range(4_000)))
    cli("write", "d.t", str(few))
    with within(AT_ONCE_S, "the error"):
        done = cli.script("write", "d.t", str(many), preexec_fn=limit_files(1_000_000))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    kept = cli.json("read", "d.t")
    assert kept[0] == {"noise": "quiet"}
    assert cli.json("embedded", "check", str(tmp_path / "fluss"))["sound"] is True


def test_no_permission(local_shop: Shop, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        # For root no mode is a hindrance; the kernel's own files are.
        closed = "/proc/rows.csv"
    else:
        tmp_path.chmod(0o500)
        closed = str(tmp_path / "rows.csv")
    said = local_shop.cli.fails("read", local_shop.events, "--to", closed)
    assert said.startswith(f"{closed}: ")
    error = PermissionError(13, "Permission denied", "/secret")
    assert sentence(error).startswith("/secret: no permission")


def test_the_reader_goes_away(local_shop: Shop) -> None:
    command = f"{SCRIPT} tables ls -b {local_shop.address} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_bug_is_a_sentence_too(
    local_shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(info: object) -> None:
        raise ZeroDivisionError("not\nthis")

    monkeypatch.setattr(tables, "_line", broken)
    said = local_shop.cli.fails("tables", "ls", local_shop.database)
    assert said == "ZeroDivisionError: not this (FLUSS_DEBUG=1 shows where)"
    monkeypatch.setenv("FLUSS_DEBUG", "1")
    with pytest.raises(ZeroDivisionError) as caught:
        broken(None)
    assert report(caught.value) == 1
    assert "Traceback" in capsys.readouterr().err
