"""Both surfaces have every member that their guides promise, with those arguments."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import fluss_client
import fluss_client.aio
from tests.examples import surfaces
from tests.needs import unavailable

MEMBER = re.compile(r"(await\s+)?(\.?)(\w+)(\(.*?\))?(?:\s|$)", re.DOTALL)
NO_DEFAULT = inspect.Parameter.empty


def _members(text: str) -> Iterator[tuple[bool, bool, str, str | None]]:
    """`(awaited, attribute, name, arguments)` of each member."""
    for awaited, dot, name, arguments in MEMBER.findall(text):
        yield bool(awaited), bool(dot), name, arguments[1:-1] if arguments else None


CASES = [
    pytest.param(module, cls, *member, id=f"{label}-{cls}.{member[2]}")
    for label, module, classes in (
        ("guide", fluss_client, surfaces.GUIDES),
        ("older guide", fluss_client, surfaces.OLDER_GUIDE),
        ("official", fluss_client.aio, surfaces.OFFICIAL),
    )
    for cls, text in classes.items()
    for member in _members(text)
]


@pytest.mark.parametrize(("module", "cls", "awaited", "attribute", "name", "arguments"), CASES)
def test_the_member_is_there(
    module: ModuleType, cls: str, awaited: bool, attribute: bool, name: str, arguments: str | None
) -> None:
    assert cls in module.__all__
    owner = getattr(module, cls)
    if attribute:
        assert name in _attributes(owner), f"{cls} has no attribute {name}"
        return
    assert arguments is not None
    function = owner if name == cls else inspect.getattr_static(owner, name)
    function = getattr(function, "__func__", function)
    _check_arguments(inspect.signature(function), arguments, f"{cls}.{name}")
    if name != cls:
        assert _is_awaited(module, function) == awaited, f"{cls}.{name}"


def _attributes(owner: type) -> set[str]:
    """Properties, fields and slots, and what `__init__` gives an instance of FlussError."""
    found = set(dir(owner))
    for base in owner.__mro__:
        found |= set(getattr(base, "__annotations__", {}))
    if issubclass(owner, fluss_client.FlussError):
        found |= set(vars(owner("text")))
    return found


def _is_awaited(module: ModuleType, function: Any) -> bool:
    if module is fluss_client.aio:
        return inspect.iscoroutinefunction(function)
    # The facade's calls have begun when they return; what is awaited is a handle.
    return str(inspect.signature(function).return_annotation).startswith("Handle")


def _check_arguments(signature: inspect.Signature, expected: str, where: str) -> None:
    ours = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    by_name = {p.name: p for p in ours}
    keyword_only = False
    position = 0
    for part in filter(None, (part.strip() for part in expected.split(","))):
        if part == "*":
            keyword_only = True
            continue
        name, _, default = part.partition("=")
        assert name in by_name, f"{where} takes no {name}: {signature}"
        found = by_name[name]
        if not keyword_only:
            assert ours[position].name == name, f"{where}: {name} is at another place: {signature}"
            position += 1
        if default == "":
            continue
        assert found.default is not NO_DEFAULT, f"{where}: {name} needs a default"
        if default != "…":
            assert repr(found.default) == default, f"{where}: {name}={found.default!r}"
    for left in ours[position:]:
        if left.name not in expected:
            optional = left.default is not NO_DEFAULT or left.kind in (
                inspect.Parameter.VAR_KEYWORD,
                inspect.Parameter.VAR_POSITIONAL,
            )
            assert optional, f"{where} asks for {left.name} too: {signature}"


def test_the_error_codes_are_those_of_the_official_client() -> None:
    official = _official_client()
    theirs = {n: getattr(official.ErrorCode, n) for n in dir(official.ErrorCode) if n.isupper()}
    assert theirs
    ours = {name: int(getattr(fluss_client.ErrorCode, name)) for name in theirs}
    assert ours == {name: int(code) for name, code in theirs.items()}


def test_constants() -> None:
    for module in (fluss_client, fluss_client.aio):
        assert module.EARLIEST_OFFSET == -2
        assert module.LATEST_OFFSET == -1
        assert re.fullmatch(r"\d+\.\d+\.\d+\S*", module.__version__)
    kinds = {kind.name: (int(kind), kind.short_string()) for kind in fluss_client.ChangeType}
    assert kinds == {
        "AppendOnly": (0, "+A"),
        "Insert": (1, "+I"),
        "UpdateBefore": (2, "-U"),
        "UpdateAfter": (3, "+U"),
        "Delete": (4, "-D"),
    }


LEFT_OUT = {"Predicate", "ColumnRef", "col", "TableScan.filter"}
"""Pruning by batch statistics, which servers have from 1.0 on; see docs/client.md."""


def test_nothing_of_the_official_client_is_missing() -> None:
    official = _official_client()
    missing = []
    for name in dir(official):
        theirs = getattr(official, name)
        if name.startswith("_") or not (inspect.isclass(theirs) or callable(theirs)):
            continue
        if name in LEFT_OUT:
            continue
        ours = getattr(fluss_client.aio, name, None)
        if ours is None:
            missing.append(name)
        elif inspect.isclass(theirs):
            missing += [
                f"{name}.{member}"
                for member in dir(theirs)
                if not member.startswith("_")
                and not hasattr(ours, member)
                and f"{name}.{member}" not in LEFT_OUT
                and member not in _attributes(ours)
            ]
    assert missing == []


def _official_client() -> ModuleType:
    try:
        return importlib.import_module("fluss")
    except ImportError:
        unavailable("the official client (pyfluss 1.0.0), to compare with")
