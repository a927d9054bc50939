"""Running commands in this process through typer's runner, and once in a while as a script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from fluss_orchestrate.cli.app import app

SCRIPT = Path(sys.executable).with_name("fluss-orchestrate")


class Cli:
    """`fluss-orchestrate` with an address and a home of its own."""

    def __init__(self, home: Path, address: str | None = None, **env: str) -> None:
        self.env: dict[str, str | None] = {
            "FLUSS_BOOTSTRAP_SERVERS": address,
            "FLUSS_PROFILE": None,
            "FLUSS_CHECKPOINT_STORE": None,
            "XDG_CONFIG_HOME": str(home),
            **env,
        }

    def run(
        self, *arguments: str, stdin: str | bytes | None = None, env: Mapping[str, str] = {}
    ) -> Result:
        """Run it here; whatever happens, no traceback."""
        result = CliRunner().invoke(app, arguments, input=stdin, env={**self.env, **env})
        assert "Traceback" not in result.output, result.output
        return result

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> str:
        """What a command that must go well prints on standard output."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, f"{arguments}: {result.output}"
        return result.stdout

    def json(self, *arguments: str, stdin: str | bytes | None = None) -> Any:
        """The one JSON document of a command that must go well."""
        return json.loads(self(*arguments, "--json", stdin=stdin))

    def fails(
        self,
        *arguments: str,
        code: int = 1,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] = {},
    ) -> str:
        """The sentence of a command that must not go well; standard output stays clean."""
        result = self.run(*arguments, stdin=stdin, env=env)
        assert result.exit_code == code, f"{arguments}: {result.output}"
        assert result.stdout == ""
        lines = result.stderr.splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("error: ")
        return lines[0].removeprefix("error: ")

    def script(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the installed script in a process of its own."""
        env = {**os.environ, **{k: v for k, v in self.env.items() if v is not None}}
        for key in [key for key, value in self.env.items() if value is None]:
            env.pop(key, None)
        return subprocess.run(
            [str(SCRIPT), *arguments],
            env={**env, **options.pop("env", {})},
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
