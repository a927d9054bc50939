"""Reading values that were written as JSON: everything that is wrong with them is one typed error.

Such values come from files, stores and other processes. So their types are checked one by one, and
numbers must fit a Fluss offset, id or time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fluss_client.errors import CorruptDataError

NUMBER_MAX = 2**63 - 1


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn each error inside the block into a `CorruptDataError` that says "this is no `what`"."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CorruptDataError(f"this is no {what}: {error}") from error
    except RecursionError:
        raise CorruptDataError(f"this is no {what}: it is nested too deeply") from None


def check_version(value: Mapping[str, Any], newest: int, what: str) -> None:
    """Refuse what a newer release has written."""
    version = number(value["version"])
    if version > newest:
        raise CorruptDataError(
            f"{what} of version {version} was written by a newer fluss-orchestrate; upgrade this "
            "one"
        )


def number(value: Any) -> int:
    """Return the value if it is a whole number of 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > NUMBER_MAX:
        raise TypeError(f"{_shown(value)} is no whole number of 64 bits")
    return value


def text(value: Any) -> str:
    """Return the value if it is a text that can be stored."""
    if not isinstance(value, str):
        raise TypeError(f"{_shown(value)} is no text")
    value.encode()  # a lone surrogate, which JSON can write, is an error here
    return value


def number_or_none(value: Any) -> int | None:
    """Return the value if it is a whole number or None."""
    return None if value is None else number(value)


def text_or_none(value: Any) -> str | None:
    """Return the value if it is a text or None."""
    return None if value is None else text(value)


def texts(value: Any) -> tuple[str, ...]:
    """Return the value as a tuple if it is a list of texts."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{_shown(value)} is no list")
    return tuple(text(item) for item in value)


def mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a mapping with texts as keys."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{_shown(value)} is no mapping")
    return {text(key): inner for key, inner in value.items()}


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
