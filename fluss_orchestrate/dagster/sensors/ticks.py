"""What all sensors share: how they are made, their cursors, and a tick without its table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from fluss_client import FlussConnection
from fluss_client.errors import DatabaseNotExistError, FlussError, TableNotExistError
from fluss_orchestrate.dagster.options import (
    Job,
    Selection,
    SensorOptions,
    checked_options,
)

CURSOR_VERSION = 1


def read_cursor(text: str | None, kind: str) -> dict[str, Any]:
    """Return what a sensor kept in its cursor.

    It is empty for no cursor, for one of another kind or of a newer version, and for one that
    cannot be read: the sensor begins anew then, and does not fail.
    """
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    if not isinstance(value, dict) or value.get("version") != CURSOR_VERSION:
        return {}
    kept = value.get("kept") if value.get("kind") == kind else None
    return kept if isinstance(kept, dict) else {}


def write_cursor(kind: str, kept: dict[str, Any]) -> str:
    """Return the text of a cursor; it is equal for equal content."""
    return json.dumps({"version": CURSOR_VERSION, "kind": kind, "kept": kept}, sort_keys=True)


Evaluate = Callable[[dg.SensorEvaluationContext], dg.SensorResult]
NOT_THERE = (TableNotExistError, DatabaseNotExistError)
"""Errors of a table that does not exist. A sensor skips and looks again: it may come."""
TICK_TIMEOUT_S = 40.0
"""Dagster gives a tick 60 seconds."""


def make_sensor(
    evaluate: Evaluate,
    *,
    name: str,
    description: str,
    resource_key: str,
    options: Mapping[str, Any],
    job: Job = None,
    asset_selection: Selection | None = None,
) -> dg.SensorDefinition:
    """Make the sensor of a builder.

    Args:
        evaluate: What a tick does.
        name: The sensor's name.
        description: What it does, for its page; `description` in the options stands instead.
        resource_key: The key of the `FlussResource`.
        options: What the builder was given for Dagster.
        job: The job that it starts.
        asset_selection: The assets that it starts.

    Raises:
        ConfigError: An option is unknown.
    """
    given = checked_options(SensorOptions, options, f"sensor {name}")

    def tick(context: dg.SensorEvaluationContext, **_resources: Any) -> dg.SensorResult:
        # Dagster gives resources as arguments, too, where a test calls the sensor as a function.
        return evaluate(context)

    made: dg.SensorDefinition = dg.sensor(
        name=name,
        job=job,
        asset_selection=asset_selection,
        required_resource_keys={resource_key},
        **{"description": description, **given},
    )(tick)
    return made


def connection_of(context: dg.SensorEvaluationContext, resource_key: str) -> FlussConnection:
    """The connection of the sensor's resource."""
    found: FlussConnection = getattr(context.resources, resource_key).connection
    return found


def absent(table: str, error: FlussError) -> str:
    """What a tick says of a table that does not exist."""
    return (
        f"{table} does not exist: {error.message}. Create it, or correct its name; the next tick "
        "looks again"
    )


class TableRound:
    """The tables that one tick looks at, and what the sensor keeps of each.

    A tick that takes too long stops, and the next one goes on where it stopped.
    """

    def __init__(
        self, cursor: str | None, kind: str, tables: Sequence[str], timeout_s: float
    ) -> None:
        kept = read_cursor(cursor, kind)
        self._kind = kind
        self._tables = list(tables)
        self._first = int(kept.get("next", 0)) % max(1, len(self._tables))
        self._timeout_s = timeout_s
        self._state: dict[str, Any] = {
            table: state for table, state in kept.get("tables", {}).items() if table in self._tables
        }
        self.seen = 0

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each table with its state, which may be changed in place; one table at least."""
        started = time.monotonic()
        for table in self._tables[self._first :] + self._tables[: self._first]:
            if self.seen and time.monotonic() - started > self._timeout_s:
                return
            self.seen += 1
            yield table, self._state.setdefault(table, {})

    def cursor(self) -> str:
        """The cursor for the next tick."""
        following = (self._first + self.seen) % max(1, len(self._tables))
        return write_cursor(self._kind, {"tables": self._state, "next": following})
