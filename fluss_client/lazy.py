"""Names of this package that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports a name, or a module, when it is used.

    Args:
        package: The package.
        homes: Which names each module below it holds.
    """
    home_of = {name: f"{package}.{home}" for home, names in homes.items() for name in names}

    def find(name: str) -> Any:
        home = home_of.get(name)
        if home is not None:
            found = getattr(importlib.import_module(home), name)
        elif name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        else:
            found = _module(package, name)
        # The next use finds it in the package.
        setattr(sys.modules[package], name, found)
        return found

    return find


def lazy_dir(package: str, names: Sequence[str]) -> Callable[[], list[str]]:
    """Return the `__dir__` of a package: its names, imported or not."""
    return lambda: sorted({*vars(sys.modules[package]), *names})


def _module(package: str, name: str) -> Any:
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{name}":
            raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}") from None
