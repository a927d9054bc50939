"""Errors of Spark jobs, and `sentence`, which makes one sentence of an error of Spark."""

from __future__ import annotations

import re

from fluss_client.errors import ClientError


class FrameChangedError(ClientError):
    """The table was changed since the frame was planned, and its earlier rows cannot be read."""


LENGTH_MAX = 600
_CLASS = re.compile(r"\b(?:[\w$]+\.)+(\w+(?:Error|Exception)): (.+)")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] (.+)")


def sentence(error: BaseException) -> str:
    """Return the most useful cause: our own error, Spark's condition, or the last one."""
    text = str(error)
    own = [
        m for m in _CLASS.finditer(text) if m.group(0).startswith(("fluss_client", "fluss_orch"))
    ]
    if own:
        return own[-1].group(2).strip()
    causes = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    for line in [*text.splitlines(), *causes]:
        found = _CONDITION.search(line)
        if found is not None:
            return _short(f"Spark says {found.group(1)}: {found.group(2)}", causes)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return _short(first or type(error).__name__, causes)


def _short(text: str, causes: list[str]) -> str:
    if causes:
        text = f"{text} ({causes[-1].removeprefix('Caused by: ').strip()})"
    return text if len(text) <= LENGTH_MAX else text[: LENGTH_MAX - 1] + "…"
