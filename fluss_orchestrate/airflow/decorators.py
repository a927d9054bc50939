"""`@task.fluss_scan`: a function that gets what is new, and commits the checkpoint by returning.

What a user's function returned for each plan of one task run, kept over retries and clears.

A run may finish the plan of another run before its own, so its function may be called more than
once; and a try that comes after the checkpoint has moved calls it no more. The results stay in
the run's task state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory

from fluss_orchestrate.airflow.operators.scanning import FlussIncrementalScanOperator
from fluss_orchestrate.airflow.run_context import call_with_context, run_state
from fluss_orchestrate.airflow.version_compat import serializers

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.bases.decorator import TaskDecorator

    from fluss_orchestrate.airflow.hooks import FlussHook
    from fluss_orchestrate.core.plan import ScanPlan

STATE_KEY = "fluss_results"


class KeptResults:
    """The results of one task run, by plan id, in the order of the calls."""

    def __init__(self, context: Context, hook: FlussHook) -> None:
        self._store = run_state(context, hook)
        kept: Any = self._store.get(STATE_KEY)
        self._kept: dict[str, Any] = dict(kept or ())
        self._now: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._kept or self._now)

    def keep(self, plan_id: str, result: Any) -> None:
        """Keep a result. Call it before the plan is committed: later, the rows do not come again.

        Raises:
            ConfigError: if the result cannot be kept, nor be an XCom.
        """
        from fluss_client.errors import ConfigError

        serialize, _ = serializers()
        try:
            plain = serialize(result)
        except (TypeError, AttributeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"the function returned a {type(result).__name__}, which Airflow cannot store "
                f"({error}): return plain values, a data class or a frame; the checkpoint has not "
                "moved"
            ) from error
        self._now[plan_id] = result
        self._kept[plan_id] = plain
        self._store.set(STATE_KEY, [[plan, value] for plan, value in self._kept.items()])

    def all(self) -> list[Any]:
        """All results of this run, of its earlier tries too."""
        _, deserialize = serializers()
        return [
            self._now[plan] if plan in self._now else deserialize(plain)
            for plan, plain in self._kept.items()
        ]


FORMS = ("reader", "arrow", "pandas", "polars")
RECEIPT_KEY = "fluss_receipt"


class FlussScanDecoratedOperator(DecoratedOperator, FlussIncrementalScanOperator):
    """The operator behind `@task.fluss_scan`."""

    free_fields = tuple(DecoratedOperator.template_fields)
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
        combine: Callable[[list[Any]], Any] | None = None,
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
        self.combine = combine
        self._results: KeptResults | None = None

    def execute(self, context: Context) -> Any:
        """Call the function with the rows of each plan, commit, and give what it returned.

        The receipt goes to XCom under its own key.
        """
        self._results = KeptResults(context, self.hook)
        receipt = FlussIncrementalScanOperator.execute(self, context)
        context["ti"].xcom_push(key=RECEIPT_KEY, value=receipt)
        results = self._results.all()
        if not results:
            self.log.warning("the rows were taken by an earlier try, whose result was not kept")
            return None
        if self.combine is not None:
            return self.combine(results)
        return results[0] if len(results) == 1 else results

    def take(self, reader: Any, plan: ScanPlan, context: Context) -> None:
        """Call the function with the rows as it wants them, and keep what it returned."""
        assert self.function is not None
        assert self._results is not None
        if plan.is_empty and self._results:
            # Another run's plan was finished before: that result stands, and there is no more.
            return
        rows = _as_form(reader, self.rows_as)
        result = call_with_context(self.function, (rows, *self.op_args), context, self.op_kwargs)
        self._results.keep(plan.plan_id, result)


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

    A run that finds another run's plan unfinished calls the function for that plan first, then for
    its own. The task returns what the function returned: for one plan its result, for several a
    list of them, or what `combine`, called with the list, makes of it. `combine` gets a list of
    one, too.
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
