"""Both surfaces have every member that their guides promise, with those arguments."""

from __future__ import annotations

import importlib
import inspect
import re
from types import ModuleType

import pyarrow as pa
import pytest

import fluss_client
import fluss_client.aio
from tests.examples import surfaces
from tests.examples.members import Member, attributes, check_member, members
from tests.needs import unavailable

CASES = [
    pytest.param(module, cls, member, id=f"{label}-{cls}.{member[2]}")
    for label, module, classes in (
        ("guide", fluss_client, surfaces.GUIDES),
        ("older guide", fluss_client, surfaces.OLDER_GUIDE),
        ("official", fluss_client.aio, surfaces.OFFICIAL),
    )
    for cls, text in classes.items()
    for member in members(text)
]


@pytest.mark.parametrize(("module", "cls", "member"), CASES)
def test_the_member_is_there(module: ModuleType, cls: str, member: Member) -> None:
    check_member(module, cls, member)


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


def test_changes_errors_and_types_show_as_in_the_official_client() -> None:
    official = _official_client()
    for ours in fluss_client.ChangeType:
        theirs = getattr(official.ChangeType, ours.name)
        shown = (str(theirs), f"{theirs}", repr(theirs), int(theirs))
        assert (str(ours), f"{ours}", repr(ours), int(ours)) == shown
    # We know some codes that it does not.
    retriable = [c for c in range(-3, 80) if official.FlussError("x", c).is_retriable]
    assert fluss_client.ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION in retriable
    assert all(fluss_client.FlussError("x", code).is_retriable for code in retriable)
    assert not fluss_client.FlussError("x").is_retriable
    assert not fluss_client.FlussError("x", 7).is_retriable
    row = pa.struct([("seq", pa.int32()), ("label", pa.string())])
    nested = pa.schema(
        [("r", row), ("l", pa.list_(row)), ("m", pa.map_(pa.string(), row)), ("d", pa.date32())]
    )
    types = fluss_client.Schema(nested).get_column_types()
    assert types[0] == "row<seq: int, label: string>"
    assert types == official.Schema(nested).get_column_types()


def test_nothing_of_the_official_client_is_missing() -> None:
    official = _official_client()
    missing = []
    for name in dir(official):
        theirs = getattr(official, name)
        if name.startswith("_") or not (inspect.isclass(theirs) or callable(theirs)):
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
                and member not in attributes(ours)
            ]
    assert missing == []


def _official_client() -> ModuleType:
    try:
        return importlib.import_module("fluss")
    except ImportError:
        unavailable("the official client (pyfluss 1.0.0), to compare with")
