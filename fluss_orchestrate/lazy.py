"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fluss_orchestrate.deprecated import new_name


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], needs: str | None = None
) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that imports each name when it is first used.

    Args:
        package: The package whose names these are.
        homes: Which names each module holds. A module is named by its path below the package, or
            in full if it is another module of fluss_orchestrate.
        needs: A framework, and the extra of the same name, that all names need.

    Returns:
        The function; it raises `MissingExtraError` if the framework is not installed.
    """
    home_of = {
        name: home if home.startswith("fluss_orchestrate.") else f"{package}.{home}"
        for home, names in homes.items()
        for name in names
    }

    def find(name: str) -> Any:
        name = new_name(package, name)
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(home), name)
        except ModuleNotFoundError as error:
            if needs is None or error.name != needs:
                raise
            from fluss_client.errors import MissingExtraError

            raise MissingExtraError(needs, needs) from error

    return find


def names_of_parent(package: str) -> Callable[[str], Any]:
    """Return a `__getattr__` that gives a package the names of its parent that its modules define.

    The parent lists a name once. It can be imported from the folder of its module too, as users of
    Airflow expect of `operators`, `sensors` and `triggers`.

    Args:
        package: The package, whose parent has names by `lazy_names`.
    """
    parent = package.rpartition(".")[0]

    def find(name: str) -> Any:
        if not name.startswith("_"):
            found = getattr(importlib.import_module(parent), name, None)
            if getattr(found, "__module__", "").startswith(f"{package}."):
                return found
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
