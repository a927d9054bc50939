"""The facade is generated from `aio`: current, and with the same names and parameters."""

from __future__ import annotations

import ast
import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import fluss_client
from fluss_client import aio
from fluss_client.facade import generate

FACADE_ONLY = {"FlussConnection": {"core"}}
AIO_ONLY = {
    # What the facade's writers use of the `aio` writer, and what they give out as handles.
    "AppendWriter": {"flush_future", "close_future", "hand_out", "rows_pending"},
    "UpsertWriter": {"flush_future", "close_future", "hand_out", "rows_pending"},
} | generate.AIO_ONLY


def _methods(owner: type) -> dict[str, Any]:
    """The public methods and properties of a class and its bases; fields are left out."""
    found = {}
    for name in dir(owner):
        member = inspect.getattr_static(owner, name)
        member = getattr(member, "__func__", member)
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            found[name] = member
    return found


def _parameters(member: Any) -> list[tuple[str, Any, Any, str]]:
    if isinstance(member, property):
        return []
    return [
        (one.name, one.kind, one.default, str(one.annotation))
        for one in inspect.signature(member).parameters.values()
    ]


@pytest.mark.parametrize("name", generate.CLASSES)
def test_both_layers_have_the_same_methods_and_parameters(name: str) -> None:
    ours = _methods(getattr(fluss_client, name))
    core = _methods(getattr(aio, name))
    expected = core.keys() - AIO_ONLY.get(name, set())
    own = FACADE_ONLY.get(name, set())
    # A builder of the facade is a writer or look-up too, for code after the older guide.
    builders = {"TableUpsert": "UpsertWriter", "TableLookup": "Lookuper"}
    if name in builders:
        own = _methods(getattr(fluss_client, builders[name])).keys() - expected
    assert ours.keys() - own == expected
    for method in expected:
        assert _parameters(ours[method]) == _parameters(core[method]), f"{name}.{method}"


@pytest.mark.parametrize("name", generate.CLASSES)
def test_every_public_method_says_what_it_does(name: str) -> None:
    for module in (fluss_client, aio):
        owner = getattr(module, name)
        assert inspect.getdoc(owner), name
        for method, member in _methods(owner).items():
            assert inspect.getdoc(member), f"{module.__name__}.{name}.{method}"


def test_check_accepts_what_is_committed() -> None:
    assert generate.main(["--check"]) == 0


def test_check_says_what_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    monkeypatch.setattr(generate, "generate", lambda: {"admin.py": "new", "table.py": "new"})
    (tmp_path / "admin.py").write_text("new")
    (tmp_path / "table.py").write_text("old")
    assert generate.main(["--check"]) == 1
    assert "no longer matches table.py" in capsys.readouterr().err
    assert (tmp_path / "table.py").read_text() == "old"
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_a_changed_signature_changes_the_facade(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = generate._parse

    def parse_with_a_new_parameter(module: str) -> Any:
        tree = parse(module)
        if module == "fluss_client.aio.admin":
            old, new = (
                "table_exists(self, table_path: TablePath)",
                "table_exists(self, *, fast: bool)",
            )
            source = ast.unparse(tree)
            assert old in source
            return ast.parse(source.replace(old, new))
        return tree

    monkeypatch.setattr(generate, "_parse", parse_with_a_new_parameter)
    text = generate.ModuleWriter("admin").text()
    assert "def table_exists(self, *, fast: bool) -> Handle[bool]" in text
    assert "self._core.table_exists(fast=fast)" in text


class _Databases:
    """A backend that knows one database."""

    async def database_exists(self, name: str) -> bool:
        return name == "sales"


def test_the_official_clients_parameter_name_is_accepted_in_both_layers() -> None:
    admin = aio.FlussAdmin(_Databases())  # type: ignore[arg-type]
    assert asyncio.run(admin.database_exists(name="sales"))
    assert asyncio.run(admin.database_exists(database_name="sales"))  # type: ignore[call-arg]
    assert not asyncio.run(admin.database_exists("other"))
    blocking = fluss_client.FlussAdmin(admin)
    assert blocking.database_exists(name="sales").result()
    assert blocking.database_exists(database_name="sales").result()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        blocking.database_exists(base="sales")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        blocking.database_exists("sales", database_name="sales")  # type: ignore[call-arg]
