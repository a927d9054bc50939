"""Reading `await Class.member(args)` and holding it against what a module has."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import fluss_client
import fluss_client.aio

_MEMBER = re.compile(r"(await\s+)?(\.?)(\w+)(\(.*?\))?(?:\s|$)", re.DOTALL)
_NO_DEFAULT = inspect.Parameter.empty
_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)

Member = tuple[bool, bool, str, str | None]
"""Awaited, attribute, name, arguments."""


def members(text: str) -> Iterator[Member]:
    """The members that a text lists."""
    for awaited, dot, name, arguments in _MEMBER.findall(text):
        yield bool(awaited), bool(dot), name, arguments[1:-1] if arguments else None


def attributes(owner: type) -> set[str]:
    """Properties, fields and slots, and what `__init__` gives an error."""
    found = set(dir(owner))
    for base in owner.__mro__:
        found |= set(getattr(base, "__annotations__", {}))
    if issubclass(owner, fluss_client.FlussError):
        found |= set(vars(owner("text")))
    return found


def check_member(module: ModuleType, cls: str, member: Member) -> None:
    """Assert that the class has the member as described."""
    awaited, attribute, name, arguments = member
    assert cls in module.__all__, f"{module.__name__} has no {cls}"
    owner = getattr(module, cls)
    if attribute:
        assert name in attributes(owner), f"{cls} has no attribute {name}"
        return
    assert arguments is not None, f"{cls}.{name} is not shown as a call"
    function = owner if name == cls else inspect.getattr_static(owner, name)
    function = getattr(function, "__func__", function)
    _check_arguments(inspect.signature(function), arguments, f"{cls}.{name}")
    if name != cls:
        assert _is_awaited(module, function) == awaited, f"{cls}.{name}: awaited or not"


def _is_awaited(module: ModuleType, function: Any) -> bool:
    if module is fluss_client.aio:
        return inspect.iscoroutinefunction(function)
    # The facade's calls have begun when they return; what is awaited is a handle.
    return str(inspect.signature(function).return_annotation).startswith("Handle")


def _check_arguments(signature: inspect.Signature, expected: str, where: str) -> None:
    ours = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    by_name = {p.name: p for p in ours}
    keyword_only = False
    named: list[str] = []
    for part in filter(None, (part.strip() for part in expected.split(","))):
        if part == "*":
            keyword_only = True
            continue
        name, _, default = part.partition("=")
        assert name in by_name, f"{where} takes no {name}: {signature}"
        if not keyword_only:
            place = ours[len(named)].name
            assert place == name, f"{where}: {place} stands where {name} should: {signature}"
        named.append(name)
        if default:
            found = by_name[name].default
            assert found is not _NO_DEFAULT, f"{where}: {name} needs a default"
            assert default == "…" or repr(found) == default, f"{where}: {name}={found!r}"
    for left in ours:
        if left.name not in named:
            optional = left.default is not _NO_DEFAULT or left.kind in _VARIADIC
            assert optional, f"{where} asks for {left.name} too: {signature}"
