"""The pictures in the docs are those that the pages give: all of them, and in their size."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from tests.console import pictures

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "console.md"


def size_of(picture: Path) -> tuple[int, int]:
    """The width and the height of a PNG."""
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height


def test_the_pictures_of_the_docs_are_made_of_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pictures.take(tmp_path / "made")
    made = {picture.name: size_of(picture) for picture in (tmp_path / "made").iterdir()}
    kept = {picture.name: size_of(picture) for picture in pictures.IMAGES.glob("console-*.png")}
    assert made == kept, "run: python -m tests.console.pictures"
    shown = set(re.findall(r"images/(console-[a-z]+\.png)", GUIDE.read_text()))
    assert shown <= made.keys()
