"""Where the console script begins: it says what to install before anything else can fail."""

from __future__ import annotations

import importlib.util
import sys


def main() -> None:
    """Run the command; without the `cli` extra, say so in one sentence and exit with 1."""
    missing = [name for name in ("typer", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(
            f"fluss-orchestrate needs {' and '.join(missing)}, which the extra 'cli' brings:"
            " run: pip install 'fluss-orchestrate[cli]'"
        )
    from fluss_orchestrate.cli.app import run

    run()
