"""The built site: every public name is in its reference, and nothing of it needs a network."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT

PACKAGES = (
    "fluss_client",
    "fluss_orchestrate",
    "fluss_orchestrate.airflow",
    "fluss_orchestrate.dagster",
    "fluss_orchestrate.spark",
)
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?P<src>[^"'\s>]+)"""
    r"""|<link\b[^>]*\brel=["']?(?:stylesheet|icon|preload|preconnect)["']?[^>]*>""",
    re.IGNORECASE,
)
_REMOTE = re.compile(r"""(?:src|href)=["']?(?:https?:)?//""", re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        for loaded in _LOADED.finditer(page.read_text()):
            assert not _REMOTE.search(loaded.group()), f"{page.name}: {loaded.group()}"
    for style in site.rglob("*.css"):
        text = style.read_text()
        assert not re.search(r"""@import|url\(["']?(?:https?:)?//""", text), style.name


def test_everything_can_be_searched(site: Path) -> None:
    text = (site / "search/search_index.json").read_text()
    assert "run_increment" in text


def test_the_reference_shows_docstrings(site: Path) -> None:
    scans = (site / "reference/scans.html").read_text()
    assert "A call that was killed continues with the same plan" in scans
    assert "max_offsets" in scans


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package: str, site: Path) -> None:
    pages = "".join(p.read_text() for p in (site / "reference").glob("*.html"))
    shown = set(re.findall(r'id="([\w.]+)"', pages))
    module = importlib.import_module(package)
    named = [n for n in module.__all__ if not isinstance(getattr(module, n), (int, str))]
    missing = [f"{package}.{name}" for name in named if not _homes(module, name) & shown]
    assert not missing, f"name these on a page of docs/reference with `:::`: {missing}"


def _homes(module: ModuleType, name: str) -> set[str]:
    """Under which ids a public name may be shown: its own, its home's, or its module's."""
    found = getattr(module, name)
    home = getattr(found, "__module__", None) or module.__name__
    own = getattr(found, "__qualname__", name)
    # An alias of a type, or a module, is shown with the module that holds it.
    values = set() if isinstance(found, type) else {home, getattr(found, "__name__", home)}
    return {f"{module.__name__}.{name}", f"{home}.{own}", *values}
