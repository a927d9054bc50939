"""What a decorated function of an increment asks for, by the names and types of its parameters."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pyarrow as pa

from fluss_client.errors import ConfigError
from fluss_orchestrate.core.plan import ScanPlan

PLAN = "plan"
CONTEXT = "context"
ROWS = "rows"
_CONTEXTS = (dg.AssetExecutionContext, dg.OpExecutionContext)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class RowsFunction:
    """A function of rows, and what it wants beside them.

    `plan` is the parameter of type `ScanPlan`, or one of that name without a type; `context` alike.
    `rows` is the one of that name, else the first that is left and no resource or config. All the
    others are Dagster's own: resources, `config`, and inputs that are loaded.
    """

    function: Callable[..., Any]
    rows: str
    plan: str | None
    context: str | None
    others: Mapping[str, inspect.Parameter]
    """What Dagster gives, with types instead of their names."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> RowsFunction:
        """Read a function's parameters.

        Raises:
            ConfigError: if no parameter takes the rows, or it takes any number of them.
        """
        called = getattr(function, "__name__", repr(function))
        left = dict(_parameters(function, called))
        plan = _taken(left, PLAN, (ScanPlan,))
        context = _taken(left, CONTEXT, _CONTEXTS)
        plain = [name for name, one in left.items() if not _is_given_by_dagster(one)]
        rows = ROWS if ROWS in left else next(iter(plain), None)
        if rows is None:
            raise ConfigError(f"{called}: it has no parameter for the rows: add one, named rows")
        del left[rows]
        return cls(function, rows, plan, context, left)

    def bound(
        self, context: dg.AssetExecutionContext, given: Mapping[str, Any]
    ) -> Callable[[pa.RecordBatchReader, ScanPlan], Any]:
        """The function of rows and plan alone, with what Dagster gave for this run."""
        own = {name: given[name] for name in self.others}
        if self.context is not None:
            own[self.context] = context

        def call(rows: pa.RecordBatchReader, plan: ScanPlan) -> Any:
            words = own if self.plan is None else {**own, self.plan: plan}
            return self.function(**words, **{self.rows: rows})

        call.__name__ = getattr(self.function, "__name__", "function")
        return call


def _parameters(function: Callable[..., Any], called: str) -> Mapping[str, inspect.Parameter]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        # A type that only type checkers import; Dagster says so if it needs it.
        hints = {}
    found = inspect.signature(function).parameters
    for one in found.values():
        if one.kind in _VARIABLE or one.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigError(
                f"{called}: parameter {one} has no name by which it is given: name the parameters "
                "that it needs, such as rows, plan, context and resources"
            )
    return {
        name: one.replace(annotation=hints.get(name, one.annotation)) for name, one in found.items()
    }


def _taken(left: dict[str, inspect.Parameter], name: str, types: tuple[type, ...]) -> str | None:
    """Take a parameter out of `left`: the one with such a type, or of that name and no type."""
    for each, one in left.items():
        untyped = one.annotation is inspect.Parameter.empty
        if one.annotation in types or (untyped and each == name):
            del left[each]
            return each
    return None


def _is_given_by_dagster(parameter: inspect.Parameter) -> bool:
    """Whether it is a resource or config, by its type."""
    kind = parameter.annotation
    if typing.get_origin(kind) is typing.Annotated:
        return True  # so is dg.ResourceParam[...]
    known = (dg.ConfigurableResource, dg.Config)
    return isinstance(kind, type) and issubclass(kind, known)
