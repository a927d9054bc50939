"""What holds for every command: help with an example, `--json`, exit codes, a light start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from fluss_orchestrate.cli.app import COMMANDS, app
from tests.cli.running import SCRIPT, Cli

HEAVY = ("pyarrow", "fluss_client", "google.protobuf", "airflow", "pyspark", "sqlalchemy", "rich")
HEAVY += ("asyncio", "importlib.metadata", "sqlite3")


def walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    below = getattr(command, "commands", None)
    if not below:
        yield words, command
    for name, sub in (below or {}).items():
        yield from walk(sub, (*words, name))


ALL = dict(walk(typer.main.get_command(app)))


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def test_the_commands_are_there() -> None:
    assert list(COMMANDS) == list(typer.main.get_command(app).list_commands(None))  # type: ignore[attr-defined, arg-type]
    groups: dict[str, set[str]] = {}
    for words in ALL:
        groups.setdefault(words[0], set()).update(words[1:])
    assert groups["tables"] == {"ls", "describe", "plan", "apply", "drop"}
    assert groups["partitions"] == {"ls", "create", "drop", "window"}
    assert groups["lake"] == {"status", "wait", "tier", "maintain"}
    assert groups["embedded"] == {"check", "vacuum"}
    changing = {"reset", "adopt", "abandon", "retire", "export", "import", "compact"}
    assert groups["checkpoints"] == {"ls", "show", "lag"} | changing


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_each_has_json_and_an_example_that_names_it(words: tuple[str, ...]) -> None:
    command = ALL[words]
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options
    assert "Example" in command.help
    assert f"fluss-orchestrate {' '.join(words)}" in command.help


@pytest.mark.parametrize("words", [(), ("tables",), ("lake",), ("embedded",)], ids=str)
def test_no_arguments_show_what_there_is(cli: Cli, words: tuple[str, ...]) -> None:
    result = cli.run(*words)
    assert result.exit_code == 2
    assert "Usage: fluss-orchestrate" in result.stdout.replace("root", "fluss-orchestrate")
    assert result.stderr == ""


def test_wrong_arguments(cli: Cli) -> None:
    for arguments, said in (
        (["nonsense"], "No such command 'nonsense'"),
        (["tables", "nonsense"], "No such command 'nonsense'"),
        (["read"], "Missing argument 'TABLE'"),
        (["read", "a.b", "--nonsense"], "No such option"),
        (["read", "a.b", "--limit", "many"], "Invalid value for '--limit'"),
        (["checkpoints", "reset", "x"], "Missing option '--to'"),
    ):
        assert said in cli.fails(*arguments, code=2)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from fluss_orchestrate.cli.app import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "checkpoints" in done.stdout


def test_the_installed_script(cli: Cli) -> None:
    assert SCRIPT.is_file()
    version = cli.script("--version")
    assert (version.returncode, version.stderr) == (0, "")
    assert version.stdout.strip()[0].isdigit()
    no_address = cli.script("databases", "ls")
    assert (no_address.returncode, no_address.stdout) == (2, "")
    assert no_address.stderr.startswith("error: no address: give --bootstrap")


def test_completion(cli: Cli) -> None:
    # The shell is named: none may be above a test.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    told = cli.script("--show-completion", "bash", env=named)
    assert "_FLUSS_ORCHESTRATE_COMPLETE" in told.stdout
    env = {
        "_FLUSS_ORCHESTRATE_COMPLETE": "complete_bash",
        "COMP_WORDS": "fluss-orchestrate checkpoints re",
        "COMP_CWORD": "2",
    }
    assert cli.script(env=env).stdout.split() == ["reset", "retire"]
