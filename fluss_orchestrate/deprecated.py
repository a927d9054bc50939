"""Old public names and parameters, and the new ones that replace them.

`RENAMED` is the only list. Each entry works for one release after the rename, gives a
`DeprecationWarning` (the command line: a note on standard error) that names the new word, and is
then deleted here and in `docs/glossary.md`. This module imports nothing of the package, so that
every layer may use it.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Renamed(NamedTuple):
    """One old word and its replacement."""

    owner: str
    """A package for a name, a function or class for a parameter, a command for an option."""
    old: str
    new: str

    @property
    def is_option(self) -> bool:
        """Whether this is an option of the command line."""
        return self.old.startswith("--")

    @property
    def is_name(self) -> bool:
        """Whether this is a name that a package exports."""
        return self.owner in (_CORE, _DAGSTER)

    @property
    def message(self) -> str:
        """The sentence that the warning or the note says."""
        if self.is_option:
            return f"{self.old} is deprecated: use {self.new}"
        if self.is_name:
            return f"{self.owner}.{self.old} is deprecated: use {self.owner}.{self.new}"
        if self.old.startswith("**"):
            return f"{self.owner}: loose keywords are deprecated: use {self.new}={{...}}"
        return f"{self.owner}: the parameter '{self.old}' is deprecated: use '{self.new}'"


_CORE = "fluss_orchestrate"
_DAGSTER = "fluss_orchestrate.dagster"
ALL_COMMANDS = "every command with a connection"

RENAMED: tuple[Renamed, ...] = (
    Renamed(_CORE, "plan", "plan_tables"),
    Renamed(_CORE, "apply", "apply_tables"),
    Renamed(_CORE, "load_specs", "load_table_specs"),
    Renamed(_CORE, "plan_window", "plan_partition_window"),
    Renamed(_CORE, "apply_window", "apply_partition_window"),
    Renamed(_CORE, "covers", "lake_covers"),
    Renamed(_CORE, "tier", "tier_table"),
    Renamed("IncrementalScan", "name", "checkpoint"),
    Renamed("IntervalScan", "name", "checkpoint"),
    Renamed("read_table", "overrides", "catalog"),
    Renamed("tier_table", "overrides", "catalog"),
    Renamed("TieringWorker", "overrides", "catalog"),
    Renamed("wait_for_snapshot", "target", "covers"),
    Renamed("fluss_table_asset", "cluster", "cluster_alias"),
    Renamed("FlussBulkLoadOperator", "options", "load_options"),
    Renamed("FlussIncrementalScanOperator", "options", "scan_options"),
    Renamed("FlussOffsetSensor", "rows", "min_offsets"),
    Renamed("FlussOffsetSensor", "since", "start"),
    Renamed("FlussOffsetTrigger", "rows", "min_offsets"),
    Renamed("FlussOffsetTrigger", "cluster", "cluster_alias"),
    Renamed("FlussLakeSnapshotTrigger", "cluster", "cluster_alias"),
    Renamed(_DAGSTER, "register_handler", "register_type_handler"),
    Renamed("FlussResource", "options", "client_options"),
    Renamed("FlussResource.incremental", "name", "checkpoint"),
    Renamed("FlussResource.incremental", "**scan_options", "scan_options"),
    Renamed("FlussResource.bulk_load", "**options", "load_options"),
    Renamed("FlussConnectionComponent", "options", "client_options"),
    Renamed("scan", "--name", "--checkpoint"),
    Renamed("lake wait", "--until", "--covers"),
    Renamed(ALL_COMMANDS, "--config", "--client-option"),
)


def renamed(owner: str) -> dict[str, Renamed]:
    """Return the old words of a package, function, class or command, by old word."""
    return {entry.old: entry for entry in RENAMED if entry.owner == owner}


def warn(entry: Renamed, stacklevel: int = 2) -> None:
    """Give the `DeprecationWarning` of an entry.

    Args:
        entry: The old word that was used.
        stacklevel: As in `warnings.warn`, counted from the caller of this function.
    """
    warnings.warn(entry.message, DeprecationWarning, stacklevel=stacklevel + 1)


def new_name(package: str, name: str) -> str:
    """Return the new name for an old name of a package, with the warning, or the name itself."""
    entry = renamed(package).get(name)
    if entry is None:
        return name
    warn(entry, stacklevel=3)
    return entry.new


def accepts_old_parameters(owner: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function accept the old parameter names that `RENAMED` has for `owner`.

    The old names stand in the signature as optional keywords, because Airflow refuses arguments
    (of `default_args` and `partial`) that it does not find there.

    Args:
        owner: The function's, class's or method's public name.

    Returns:
        A decorator for the function, or for the class's `__init__`.
    """
    entries = renamed(owner)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in entries.keys() & kwargs.keys():
                entry = entries[old]
                if entry.new in kwargs:
                    raise TypeError(f"{owner}: give '{entry.new}' or '{old}', not both")
                warn(entry)
                kwargs[entry.new] = kwargs.pop(old)
            return function(*args, **kwargs)

        call.__signature__ = _with_old(inspect.signature(function), entries)  # type: ignore[attr-defined]
        return call

    return decorate


def _with_old(signature: inspect.Signature, entries: Mapping[str, Renamed]) -> inspect.Signature:
    parameters = list(signature.parameters.values())
    has_rest = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
    rest = [parameters.pop()] if has_rest else []
    old: list[Any] = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in entries
        if not name.startswith("**")
    ]
    return signature.replace(parameters=[*parameters, *old, *rest])
