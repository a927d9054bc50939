"""The project's pages as blocks of code, with what the comments before them say.

A comment right before a block is an order to the runner, invisible to readers of the site:

    <!-- run: shop -->         (once per page) the set-up that the page's blocks begin with
    <!-- file: job.py -->      the block is a file, written before the following blocks run
    <!-- long: reason -->      the block runs in the long form, and is parsed in the short one
    <!-- no-run: reason -->    the block cannot run here; it is parsed all the same

A `text` block right after a block that runs is what that prints; `…` stands for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_ORDER = re.compile(r"<!--\s*(run|file|long|no-run):\s*(.*?)\s*-->", re.DOTALL)

# Pages whose programs another test runs, with set-ups of its own.
ELSEWHERE = frozenset(
    {
        "docs/airflow.md",
        "docs/cli.md",
        "docs/client.md",
        "docs/dagster.md",
        "docs/reliability.md",
        "docs/spark.md",
    }
)


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    line: int
    language: str
    code: str
    file: str | None = None
    no_run: str | None = None
    long: str | None = None
    expected: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """A page: its set-up and its blocks, in order."""

    path: str
    setup: str | None
    blocks: tuple[Block, ...]

    def with_words(self, words: Mapping[str, str]) -> Page:
        """The page with other words in its blocks, such as the address of a real server."""
        blocks = []
        for block in self.blocks:
            code = block.code
            for old, new in words.items():
                code = code.replace(old, new)
            blocks.append(replace(block, code=code))
        return replace(self, blocks=tuple(blocks))


def page_paths() -> list[str]:
    """Every page of the project that this runner answers for."""
    tops = [ROOT / folder / "README.md" for folder in ("", "dags", "docker")]
    found = [*tops, *sorted(ROOT.glob("docs/**/*.md"))]
    names = [str(path.relative_to(ROOT)) for path in found if path.is_file()]
    return [name for name in names if name not in ELSEWHERE]


def read_page(path: str) -> Page:
    """The page's blocks with their orders."""
    text = (ROOT / path).read_text()
    setups = [what for order, what in _ORDER.findall(text) if order == "run"]
    assert len(setups) <= 1, f"{path} names {len(setups)} set-ups"
    return Page(path, setups[0] if setups else None, tuple(_blocks(path, text)))


def _blocks(path: str, text: str) -> Iterator[Block]:
    matches = list(_FENCE.finditer(text))
    for at, match in enumerate(matches):
        language, code = match.groups()
        before = text[matches[at - 1].end() if at else 0 : match.start()]
        orders = dict(_ORDER.findall(before[_last_prose(before) :]))
        expected = None
        if at + 1 < len(matches) and matches[at + 1].group(1) == "text":
            between = text[match.end() : matches[at + 1].start()]
            expected = matches[at + 1].group(2) if not between.strip() else None
        line = text.count("\n", 0, match.start()) + 1
        yield Block(
            path,
            line,
            language,
            code,
            orders.get("file"),
            orders.get("no-run"),
            orders.get("long"),
            expected,
        )


def _last_prose(before: str) -> int:
    """Where the comments that belong to the next block begin."""
    comments = re.search(r"(<!--(?:(?!-->).)*-->\s*)+\Z", before, re.DOTALL)
    return len(before) if comments is None else comments.start()
