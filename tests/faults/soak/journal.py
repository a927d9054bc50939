"""The files in which the programs of a soak write down what they do; they outlive any kill.

A line is one write to the end of a file, so a kill leaves whole lines. `steps` has what was done,
`refused` the typed errors that a program met and went on after, `wrong` what must never be.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.soak.history import APART, KeyWritten, Written

Line = dict[str, Any]


class Journal:
    """The files of one role."""

    def __init__(self, folder: Path, role: str) -> None:
        self._path = folder / f"journal-{role}"

    def _file(self, kind: str) -> Path:
        return self._path.with_suffix(f".{kind}")

    def _add(self, kind: str, line: Line) -> None:
        file = os.open(self._file(kind), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, f"{json.dumps(line)}\n".encode())
        finally:
            os.close(file)

    def step(self, **line: Any) -> None:
        """Something was begun or done."""
        self._add("steps", line)

    def refused(self, error: BaseException) -> None:
        """A typed error, after which the program goes on."""
        self._add("refused", {"error": type(error).__name__, "message": str(error)[:500]})

    def wrong(self, what: str) -> None:
        """Something that must never be."""
        self._add("wrong", {"what": what})

    def steps(self) -> Iterator[Line]:
        """What was begun and done."""
        return _lines(self._file("steps"))

    def progress(self) -> int:
        """A number that grows with every step."""
        path = self._file("steps")
        return path.stat().st_size if path.exists() else 0

    def refusals(self) -> Counter[str]:
        """How often each typed error was met."""
        return Counter(line["error"] for line in _lines(self._file("refused")))

    def wrongs(self) -> list[str]:
        """What must never be, and was."""
        return [line["what"] for line in _lines(self._file("wrong"))]


def _lines(path: Path) -> Iterator[Line]:
    if path.exists():
        with path.open() as file:
            yield from (json.loads(line) for line in file)


def next_number(journal: Journal, writer: int) -> int:
    """The first number that a writer has not sent yet, also in its earlier lives."""
    last = writer * APART
    for line in journal.steps():
        last = line["sent"][1] if "sent" in line else last
    return last


def written(journals: list[Journal]) -> Written:
    """What the writers of a log table sent, and what was acknowledged."""
    found = Written()
    for journal in journals:
        for line in journal.steps():
            if "sent" in line:
                found.sent.append(tuple(line["sent"]))
            else:
                found.acknowledged.append(tuple(line["acknowledged"]))
    return found


def keys_written(journal: Journal) -> KeyWritten:
    """What the writer of a key table sent, and what was acknowledged."""
    found = KeyWritten()
    for line in journal.steps():
        if "sent" in line:
            first, stop = line["sent"]
            found.sent.append((first, stop))
            change: dict[int, int | None] = dict(zip(line["keys"], range(first, stop), strict=True))
            found.changes.append((first, change | dict.fromkeys(line["deleted"])))
        else:
            found.acknowledged.append(tuple(line["acknowledged"]))
    return found
