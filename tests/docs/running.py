"""Running the blocks of a page: Python in one namespace, commands in this process."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from fluss_client import FlussConnection
from tests.docs.pages import Block, Page

COMMAND = "fluss-orchestrate"
SILENT = ("", "text", "dockerfile", "ini", "mermaid", "sql")
"""Languages of blocks that are only to be looked at."""


def check_syntax(block: Block) -> None:
    """The block is what it says it is, whether it runs or not."""
    if block.language == "python":
        ast.parse(block.code, str(block))
    elif block.language == "yaml":
        list(yaml.safe_load_all(block.code))
    elif block.language == "toml":
        tomllib.loads(block.code)
    elif block.language in ("console", "bash"):
        for command in commands(block):
            shlex.split(command, comments=True)
    else:
        assert block.language in SILENT, f"{block}: nobody checks '{block.language}'"


def commands(block: Block) -> list[str]:
    """The commands of a console block: the lines after `$ `, with their continuations."""
    if block.language == "bash":
        return block.code.replace("\\\n", " ").splitlines()
    text = block.code.replace("\\\n", " ")
    found = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    assert found, f"{block}: a console block has commands after '$ '"
    return found


def run_page(page: Page, namespace: dict[str, Any], folder: Path, long_form: bool) -> None:
    """Run every block that can run, in order; a connection that a block opened is closed."""
    try:
        for block in page.blocks:
            check_syntax(block)
            if block.no_run is None and (long_form or block.long is None):
                run_block(block, namespace, folder)
    finally:
        for value in list(namespace.values()):
            if isinstance(value, FlussConnection):
                value.close()


def run_block(block: Block, namespace: dict[str, Any], folder: Path) -> None:
    """Run one block, and compare what it prints with what the page shows."""
    if block.file is not None:
        (folder / block.file).write_text(block.code)
        return
    if block.language == "python":
        # Lines before it are left empty, so that a traceback points into the page.
        code = compile("\n" * block.line + block.code, block.page, "exec")
        printed = _printed(lambda: exec(code, namespace))
    elif block.language == "console":
        printed = "".join(_printed(lambda c=c: _run_command(block, c)) for c in commands(block))  # type: ignore[misc]
        shown = [line for line in block.code.splitlines() if not _is_input(line, block)]
        _compare(block, "\n".join(shown), printed)
    else:
        return
    if block.expected is not None:
        _compare(block, block.expected, printed)


def _is_input(line: str, block: Block) -> bool:
    lines = block.code.splitlines()
    at = lines.index(line)
    return line.startswith("$ ") or (at > 0 and lines[at - 1].endswith("\\"))


def _printed(work: Callable[[], object]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        work()
    return out.getvalue()


def _run_command(block: Block, command: str) -> None:
    words = shlex.split(command, comments=True)
    assert words[0] == COMMAND, f"{block}: '{words[0]}' does not run here; say no-run and why"
    from fluss_orchestrate.cli.app import run

    before, code = sys.argv, None
    sys.argv = words
    try:
        run()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = before
    assert code in (0, None), f"{block}: '{command}' ended with {code}"


def _compare(block: Block, shown: str, printed: str) -> None:
    """What the page shows was printed, line by line and in that order."""
    rest = printed.splitlines()
    for line in filter(str.strip, shown.splitlines()):
        pattern = re.compile(".*".join(map(_loose, line.strip().split("…"))) + r"\Z")
        at = next((i for i, found in enumerate(rest) if pattern.match(found.strip())), None)
        assert at is not None, f"{block} shows\n{line}\nbut this was printed:\n{printed}"
        del rest[: at + 1]


def _loose(text: str) -> str:
    return r"\s+".join(map(re.escape, re.split(r"\s+", text)))
