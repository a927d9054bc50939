"""Reading values that were written down as JSON: whatever is wrong with them is one typed error.

Files, stores and other processes hand such values in, so their types are checked one by one, and
numbers must be such that a Fluss offset, id or time can be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fluss_client.errors import CorruptDataError

NUMBER_MAX = 2**63 - 1


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what goes wrong inside into a `CorruptDataError` that says "this is no `what`"."""
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
    """A whole number that fits 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > NUMBER_MAX:
        raise TypeError(f"{_shown(value)} is no whole number of 64 bits")
    return value


def text(value: Any) -> str:
    """A text that can be stored."""
    if not isinstance(value, str):
        raise TypeError(f"{_shown(value)} is no text")
    value.encode()  # a lone surrogate, which JSON can write, is an error here
    return value


def number_or_none(value: Any) -> int | None:
    """A whole number, or nothing."""
    return None if value is None else number(value)


def text_or_none(value: Any) -> str | None:
    """A text, or nothing."""
    return None if value is None else text(value)


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{_shown(value)} is no list")
    return tuple(text(item) for item in value)


def mapping(value: Any) -> dict[str, Any]:
    """A mapping with texts as keys."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{_shown(value)} is no mapping")
    return {text(key): inner for key, inner in value.items()}


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
