"""The connection form of Airflow before 3.2, made of the description that later releases read."""

from __future__ import annotations

from typing import Any

from fluss_orchestrate.airflow.provider_info import get_provider_info


def widgets() -> dict[str, Any]:
    """Return the form's own fields: those of wtforms, which Airflow asks for."""
    from wtforms import StringField  # type: ignore[import-untyped,unused-ignore]
    from wtforms.validators import any_of  # type: ignore[import-untyped,unused-ignore]

    made = {}
    for name, field in _described()["conn-fields"].items():
        schema = field["schema"]
        made[name] = StringField(
            field["label"],
            [any_of(schema["enum"])] if "enum" in schema else [],
            description=field["description"],
            default=schema["default"],
        )
    return made


def field_behaviour() -> dict[str, Any]:
    """Return which of the standard fields are hidden, and what the others are called."""
    told = _described()["ui-field-behaviour"]
    return {name.replace("-", "_"): value for name, value in told.items()}


def _described() -> dict[str, Any]:
    (found,) = get_provider_info()["connection-types"]
    return dict(found)
