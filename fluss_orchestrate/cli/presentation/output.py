"""Where answers go: JSON or tables to standard output, and nothing else there."""

from __future__ import annotations

import base64
import datetime as dt
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH_WITHOUT_TERMINAL = 400
"""The width of tables in a pipe, so that they are not folded to the width of a terminal."""


class Output:
    """The answer of one command, for a program or for a person."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json

    def answer(self, value: Any, show: Callable[[], RenderableType | Iterable[Any]]) -> None:
        """Print `value` as one JSON document, or what `show` makes for people."""
        if self.as_json:
            print(to_json(value))
            return
        shown = show()
        lines = shown if isinstance(shown, (list, tuple)) else [shown]
        for line in lines:
            if isinstance(line, str):
                print(line)
            else:
                console().print(line)

    def note(self, text: str) -> None:
        """Print a note for people on standard error."""
        print(text, file=sys.stderr)


def console(*, to_stderr: bool = False) -> Console:
    """Return a console that prints texts as they are."""
    from rich.console import Console

    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    empty: str = "none",
    shown: Callable[[Any], str] | None = None,
) -> Any:
    """Return rows under headers, with numbers to the right; `empty` is the text without rows."""
    from rich.table import Table

    cells = [list(row) for row in rows]
    if not cells:
        return empty
    made = Table(box=None, pad_edge=False, header_style="bold")
    for at, header in enumerate(headers):
        numeric = all(isinstance(row[at], (int, float)) or row[at] is None for row in cells)
        made.add_column(header, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        made.add_row(*((shown or cell)(value) for value in row))
    return made


def pairs(values: Mapping[str, Any], shown: Callable[[Any], str] | None = None) -> Any:
    """Return names and values, one per line."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    for name, value in values.items():
        made.add_row(name, (shown or cell)(value))
    return made


def cell(value: Any) -> str:
    """Return a value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def datum(value: Any) -> str:
    """Return a value of a user's row as text; nothing is added to its digits."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    text = to_json(value)
    return text[1:-1] if text.startswith('"') else text


def count(number: int, noun: str) -> str:
    """Return `1 row` or `2 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def to_json(value: Any) -> str:
    """Return JSON in which times are ISO 8601, decimals are text and bytes are base64."""
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def ago(milliseconds: int | None) -> str:
    """Return a span of time in its largest units."""
    if milliseconds is None:
        return "-"
    seconds = milliseconds / 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if abs(seconds) >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def when(milliseconds: int) -> str:
    """Return a moment in UTC, to the second."""
    if milliseconds < 0:
        return "-"
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")
