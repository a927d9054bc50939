"""Calling a user's function with what it names of Airflow's context."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context


def call_with_context(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    context: Context,
    keywords: Mapping[str, Any] | None = None,
) -> Any:
    """`function(*arguments, **keywords)`, with the context's values that it names besides.

    A parameter `context` gets the whole of it, `**kwargs` every key.
    """
    given = dict(keywords or {})
    parameters = inspect.signature(function).parameters
    values: dict[str, Any] = {**context, "context": context}
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return function(*arguments, **{**context, **given})
    positional = list(parameters)[: len(arguments)]
    for name in parameters:
        if name in values and name not in given and name not in positional:
            given[name] = values[name]
    return function(*arguments, **given)
