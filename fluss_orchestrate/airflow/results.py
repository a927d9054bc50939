"""What a user's function returned for each plan of one task run, kept over retries and clears.

A run may finish the plan of another run before its own, so its function may be called more than
once; and a try that comes after the checkpoint has moved calls it no more. The results stay in
the run's task state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

STATE_KEY = "fluss_results"


class KeptResults:
    """The results of one task run, by plan id, in the order of the calls."""

    def __init__(self, context: Context) -> None:
        self._store: Any = context.get("task_state_store")
        kept: Any = None if self._store is None else self._store.get(STATE_KEY)
        self._kept: dict[str, Any] = dict(kept or ())
        self._now: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._kept or self._now)

    def keep(self, plan_id: str, result: Any) -> None:
        """Keep a result. Call it before the plan is committed: later, the rows do not come again.

        Raises:
            ConfigError: if the result cannot be kept, nor be an XCom.
        """
        from airflow.sdk.serde import serialize

        from fluss_client.errors import ConfigError

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
        if self._store is not None:
            self._store.set(STATE_KEY, [[plan, value] for plan, value in self._kept.items()])

    def all(self) -> list[Any]:
        """All results of this run, of its earlier tries too."""
        from airflow.sdk.serde import deserialize

        return [
            self._now[plan] if plan in self._now else deserialize(plain)
            for plan, plain in self._kept.items()
        ]
