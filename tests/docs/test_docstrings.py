"""Every public name has a docstring that says what it does, and explains every parameter.

The docstring of a function begins with a sentence in the imperative ("Return the rows").

A parameter is explained if the docstring lists it (`Args:` or `Attributes:`), if it names it in
backticks, or, for a field of a class, if a string below the field explains it. A class that users
get from another call says so with the words of `MADE_ELSEWHERE` instead of listing parameters.

The modules are parsed, not imported, so the test needs neither Airflow, Dagster nor Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest

ROOT = Path(__file__).parents[2]
PUBLIC_MODULES = (
    "fluss_client",
    "fluss_client.aio",
    "fluss_client.engine",
    "fluss_orchestrate",
    "fluss_orchestrate.airflow",
    "fluss_orchestrate.dagster",
    "fluss_orchestrate.spark",
)
# How a class says that users do not construct it; the sentence also says where one comes from.
MADE_ELSEWHERE = re.compile(r"do\s+not\s+call\s+the\s+constructor", re.IGNORECASE)
# How a text begins that is no sentence, and so does not say what a function does.
NO_SENTENCE = re.compile(
    r"(A|All|An|As|By|Each|Every|For|From|How|In|Its|Like|No|Of|One|Same|That|The|This|What|When"
    r"|Where|Whether|Which|Why)\b|[a-z`]"
)
LISTING_SECTIONS = {
    griffe.DocstringSectionKind.parameters,
    griffe.DocstringSectionKind.attributes,
    griffe.DocstringSectionKind.other_parameters,
}


@pytest.fixture(scope="module")
def packages() -> griffe.ModulesCollection:
    loader = griffe.GriffeLoader(search_paths=[ROOT], allow_inspection=False)
    for package in ("fluss_client", "fluss_orchestrate"):
        loader.load(package)
    return loader.modules_collection


def text_of(item: griffe.Object) -> str:
    return item.docstring.value if item.docstring else ""


def first_line(item: griffe.Object) -> str:
    return text_of(item).partition("\n\n")[0].rstrip()


def listed_in(item: griffe.Object) -> set[str]:
    """Return the names that the sections of a docstring list."""
    if item.docstring is None:
        return set()
    return {
        entry.name.lstrip("*")
        for section in item.docstring.parse("google", warnings=False)
        if section.kind in LISTING_SECTIONS
        for entry in section.value
    }


def unexplained(item: griffe.Object, names: Iterator[str]) -> list[str]:
    """Return the names that neither the docstring nor, for a class, its `__init__` explains."""
    sources = [item]
    if item.is_class and "__init__" in item.members:
        sources.append(item.members["__init__"])
    text = "\n".join(text_of(one) for one in sources)
    listed = set().union(*(listed_in(one) for one in sources))
    words = {word for span in re.findall(r"`[^`]+`", text) for word in re.findall(r"\w+", span)}
    return [name for name in names if name not in listed | words]


def parameters_of(item: griffe.Function | griffe.Class) -> Iterator[str]:
    """Yield the parameters that a caller may pass."""
    for parameter in item.parameters:
        if parameter.name not in ("self", "cls") and not parameter.name.startswith("_"):
            yield parameter.name


def fields_of(item: griffe.Class) -> Iterator[str]:
    """Yield the annotated fields of a class that has no `__init__`."""
    for name, member in item.members.items():
        is_field = member.is_attribute and "property" not in member.labels
        if is_field and member.annotation is not None and not name.startswith("_"):
            yield name


def explained_below(item: griffe.Class, name: str) -> bool:
    """Return whether a string below a field explains it."""
    member = item.members.get(name)
    return member is not None and member.docstring is not None


def faults_of_function(name: str, function: griffe.Function) -> Iterator[str]:
    if not text_of(function):
        yield f"{name}: no docstring"
    elif NO_SENTENCE.match(text_of(function)) or not first_line(function).endswith("."):
        yield f"{name}: the docstring does not begin with a sentence that says what it does"
    elif missing := unexplained(function, parameters_of(function)):
        yield f"{name}: the docstring does not explain {', '.join(missing)}"


def faults_of_class(name: str, item: griffe.Class) -> Iterator[str]:
    if not text_of(item):
        yield f"{name}: no docstring"
        return
    for member_name, member in item.members.items():
        if member_name.startswith("_") or member.is_alias:
            continue
        if member.is_function:
            yield from faults_of_function(f"{name}.{member_name}", member)
        elif member.is_attribute and "property" in member.labels and not text_of(member):
            yield f"{name}.{member_name}: no docstring"
    if MADE_ELSEWHERE.search(text_of(item)):
        return
    names = parameters_of(item) if "__init__" in item.members else fields_of(item)
    names = (one for one in names if not explained_below(item, one))
    if missing := unexplained(item, names):
        yield f"{name}: the docstring does not explain {', '.join(missing)}"


def faults_of(name: str, item: griffe.Object) -> Iterator[str]:
    if item.is_class:
        yield from faults_of_class(name, item)
    elif item.is_function:
        yield from faults_of_function(name, item)


def public_objects(
    packages: griffe.ModulesCollection, module: str
) -> Iterator[tuple[str, griffe.Object]]:
    for export in packages[module].exports:
        item = packages[module].members[str(export)]
        yield f"{module}.{export}", item.final_target if item.is_alias else item


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_the_docstrings_explain_every_parameter(
    packages: griffe.ModulesCollection, module: str
) -> None:
    objects = list(public_objects(packages, module))
    assert objects
    faults = [fault for name, item in objects for fault in faults_of(name, item)]
    assert faults == []


def test_the_rule_sees_what_is_missing() -> None:
    module = griffe.visit(
        "example",
        filepath=None,  # type: ignore[arg-type]
        code='''
def listed(a, *b, **c):
    """Do it.

    Args:
        a: One.
        *b: More.
        **c: Named ones.
    """

def named(a):
    """Do it with `a`."""

def silent(a, b):
    """Do it with `a`."""

def noun():
    """The questions."""

def unended():
    """Return the questions"""

class Fields:
    """Values.

    Attributes:
        a: One.
    """
    a: int
    b: int
    """Another."""
    c: int
    def bare(self): ...

class Made:
    """Made by `named`; do not call the constructor."""
    def __init__(self, a): ...
''',
    )
    faults = [fault for name, item in module.members.items() for fault in faults_of(name, item)]
    assert faults == [
        "silent: the docstring does not explain b",
        *(
            f"{name}: the docstring does not begin with a sentence that says what it does"
            for name in ("noun", "unended")
        ),
        "Fields.bare: no docstring",
        "Fields: the docstring does not explain c",
    ]
