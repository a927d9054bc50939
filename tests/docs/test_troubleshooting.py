"""The troubleshooting page names every error class, with its code and whether a retry helps."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator

from fluss_client.errors import FlussError
from tests.docs.pages import ROOT

_ROW = re.compile(r"^\| `(\w+)` \| (-?\d*) \| (yes)? ?\| (.+?) \| (.+?) \|$", re.MULTILINE)


def _error_classes() -> Iterator[type[FlussError]]:
    for package in ("fluss_client", "fluss_orchestrate"):
        for path in sorted((ROOT / package).rglob("*.py")):
            names = [
                n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef)
            ]
            if not any(name.endswith("Error") for name in names):
                continue
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for name in names:
                found = getattr(module, name)
                if isinstance(found, type) and issubclass(found, FlussError):
                    yield found


def test_every_error_class_is_explained() -> None:
    text = (ROOT / "docs/troubleshooting.md").read_text()
    described = {name: (code, retry) for name, code, retry, _, _ in _ROW.findall(text)}
    actual = {
        error.__name__: (str(error.code) if error.code >= -1 else "", "yes" * error.retriable)
        for error in _error_classes()
    }
    assert len(actual) > 100
    assert described == actual
