"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], needs: str | None = None
) -> Callable[[str], Any]:
    """A module's `__getattr__`: `homes` says which submodule holds which names.

    `needs` is a framework, and the extra of that name, without which none of them can be had.
    """
    home_of = {name: f"{package}.{home}" for home, names in homes.items() for name in names}

    def find(name: str) -> Any:
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
