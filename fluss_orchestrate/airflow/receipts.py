"""Receipts in Airflow: the task's return value, and the extra of its outlets' events."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_orchestrate.core.receipts import Receipt

EXTRA_KEY = "fluss"


def publish(context: Context, result: Mapping[str, Any]) -> dict[str, Any]:
    """Put a task's result into the extra of every outlet's event; gives it for XCom."""
    from airflow.sdk import Asset, AssetAlias

    plain = dict(result)
    for outlet in context["task"].outlets:
        if isinstance(outlet, (Asset, AssetAlias)):
            context["outlet_events"][outlet].extra[EXTRA_KEY] = plain
    return plain


def receipt_from(value: Mapping[str, Any] | str) -> Receipt:
    """The receipt in a task's return value, in an event's extra, or in the text of either."""
    from fluss_client.errors import CorruptDataError
    from fluss_orchestrate.core.receipts import Receipt

    if isinstance(value, str):
        value = parsed_text(value)
    if isinstance(value, Mapping) and EXTRA_KEY in value:
        value = value[EXTRA_KEY]
    if not isinstance(value, Mapping):
        raise CorruptDataError(f"a receipt is a mapping, not {type(value).__name__}")
    return Receipt.from_json(value)


def parsed_text(text: str) -> Any:
    """The value whose JSON, or whose text in Python, a template has made.

    Raises:
        CorruptDataError: if the text is neither.
    """
    from fluss_client.errors import CorruptDataError

    # JSON, or what a template makes of a dictionary unless the DAG renders native objects.
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError):
            continue
    raise CorruptDataError(f"this text is no receipt and no offsets: {text[:100]}")
