"""`@task.fluss_scan`: a function that gets what is new, and commits the checkpoint by returning."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory

from fluss_orchestrate.airflow.operators.scanning import FlussIncrementalScanOperator

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.bases.decorator import TaskDecorator

FORMS = ("reader", "arrow", "pandas", "polars")
RECEIPT_KEY = "fluss_receipt"


class FlussScanDecoratedOperator(DecoratedOperator, FlussIncrementalScanOperator):
    """The operator behind `@task.fluss_scan`."""

    template_fields: Sequence[str] = (
        *DecoratedOperator.template_fields,
        *(f for f in FlussIncrementalScanOperator.template_fields if f != "sink"),
    )
    custom_operator_name = "@task.fluss_scan"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        rows_as: str = "reader",
        op_args: Sequence[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if rows_as not in FORMS:
            raise ValueError(f"rows_as is one of {', '.join(FORMS)}, not '{rows_as}'")
        super().__init__(
            python_callable=_without_rows(python_callable),
            op_args=op_args,
            op_kwargs=op_kwargs,
            sink=python_callable,
            **kwargs,
        )
        self.rows_as = rows_as

    def execute(self, context: Context) -> Any:
        """Call the function with the rows, commit, and give what it returned.

        The receipt goes to XCom under its own key.
        """
        receipt = FlussIncrementalScanOperator.execute(self, context)
        context["ti"].xcom_push(key=RECEIPT_KEY, value=receipt)
        return self.returned

    def call_function(self, reader: Any, context: Context) -> Any:
        """The function with the rows as it wants them."""
        from fluss_orchestrate.airflow.callables import call_with_context

        rows = _as_form(reader, self.rows_as)
        assert self.function is not None
        return call_with_context(self.function, (rows, *self.op_args), context, self.op_kwargs)


def fluss_scan_task(
    python_callable: Callable[..., Any] | None = None,
    multiple_outputs: bool | None = None,
    **kwargs: Any,
) -> TaskDecorator:
    """Make a function a task that gets an increment as its first argument.

    `table` and `checkpoint` say of what; `rows_as` is `reader` (an Arrow reader, which must be
    read to its end), `arrow`, `pandas` or `polars`. The other arguments are those of
    `FlussIncrementalScanOperator`. When the function returns, the checkpoint moves; when it
    raises, or dies, the next try gets the same rows again.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=FlussScanDecoratedOperator,
        **kwargs,
    )


def _without_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Airflow shall see it: its first argument comes when the task runs."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if not parameters:
        raise ValueError(f"{function.__name__} must take the rows as its first argument")

    def seen(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    seen.__name__, seen.__doc__ = function.__name__, function.__doc__
    seen.__signature__ = signature.replace(parameters=parameters[1:])  # type: ignore[attr-defined]
    return seen


def _as_form(reader: Any, form: str) -> Any:
    if form == "reader":
        return reader
    table = reader.read_all()
    if form == "arrow":
        return table
    if form == "pandas":
        return _frame("pandas", table.to_pandas)
    return _frame("polars", lambda: _polars(table))


def _frame(package: str, make: Callable[[], Any]) -> Any:
    from fluss_client.errors import MissingExtraError

    try:
        return make()
    except ImportError:
        raise MissingExtraError(package, package) from None


def _polars(table: Any) -> Any:
    import polars

    return polars.from_arrow(table)
