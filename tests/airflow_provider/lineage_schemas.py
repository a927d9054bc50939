"""JSON Schemas of OpenLineage's events and facets, without a network.

The client's generated classes are the specification's schemas in Python: this turns them back.
A facet names its schema by URL, and the class with that URL judges it.
"""

from __future__ import annotations

import enum
import importlib
import pkgutil
import types
import typing
from functools import cache
from typing import Any

import attr
import jsonschema
from openlineage.client import generated
from openlineage.client.generated.base import BaseFacet, RunEvent

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_URI = {"type": "string", "pattern": r"^https?://\S+$"}
_ALWAYS = ("_producer", "_schemaURL", "producer", "schemaURL")
_SPECIAL: dict[str, dict[str, Any]] = {
    "runId": {"type": "string", "format": "uuid"},
    "eventTime": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-])"},
    "producer": _URI,
    "_producer": _URI,
    "schemaURL": _URI,
    "_schemaURL": _URI,
}


def check_event(event: dict[str, Any], own: dict[str, type] | None = None) -> list[str]:
    """Validate an event and each of its facets; the URLs of the schemas that judged them.

    `own` has the classes of facets that the specification does not know, by the facet's name.
    """
    _validate(event, RunEvent)
    assert event["schemaURL"] == RunEvent._get_schema()
    judged = [event["schemaURL"]]
    for name, facet in _facets(event):
        kind = (own or {}).get(name) or _kinds().get(facet["_schemaURL"])
        _validate(facet, kind or BaseFacet)
        if kind is not None:
            judged.append(facet["_schemaURL"])
    return judged


def _facets(event: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    datasets = [*event.get("inputs", []), *event.get("outputs", [])]
    found: list[tuple[str, dict[str, Any]]] = []
    for holder in (event["run"], event["job"], *datasets):
        for key in ("facets", "inputFacets", "outputFacets"):
            found += (holder.get(key) or {}).items()
    return found


@cache
def _kinds() -> dict[str, type]:
    """The facets that the specification knows, by the URL of their schema."""
    found = {}
    for module in pkgutil.iter_modules(generated.__path__):
        names = vars(importlib.import_module(f"{generated.__name__}.{module.name}"))
        for kind in names.values():
            if isinstance(kind, type) and issubclass(kind, BaseFacet):
                found[kind._get_schema()] = kind
    return found


def _validate(value: dict[str, Any], kind: type) -> None:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.validate(
        value, _schema(kind), jsonschema.Draft202012Validator, format_checker=checker
    )


@cache
def _schema(kind: type) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    return {**_of_class(kind, shared), "$defs": shared}


def _of_class(kind: type, shared: dict[str, Any]) -> dict[str, Any]:
    """A reference to the class's schema, which is added to those that are shared."""
    if kind.__name__ not in shared:
        shared[kind.__name__] = {}  # a class may have fields of its own kind
        hints, fields = typing.get_type_hints(kind), attr.fields(kind)
        shared[kind.__name__] |= {
            "type": "object",
            "properties": {
                f.name: _SPECIAL.get(f.name) or _of_hint(hints[f.name], shared) for f in fields
            },
            "required": [f.name for f in fields if f.default is attr.NOTHING or f.name in _ALWAYS],
        }
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _of_hint(hint: Any, shared: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of_hint(a, shared) for a in arguments]}
    if origin is list:
        return {"type": "array", "items": _of_hint(arguments[0], shared)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of_hint(arguments[1], shared)}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if hint is type(None):
        return {"type": "null"}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if isinstance(hint, type) and attr.has(hint):
        return _of_class(hint, shared)
    assert hint in (Any, dict, object), f"no schema for {hint}"
    return {}
