"""Configuration options: the descriptor of a key, and the parsers of values.

`Option` is a descriptor, so that `config.writer_batch_size` has a type, a checked value, a
description and one definition.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from fluss_client.errors import ConfigError, without_frames

T = TypeVar("T")
EMBEDDED_SCHEME = "embedded:"
UNBOUNDED_MS = (1 << 64) - 1

_SIZE = re.compile(r"(\d+)\s*(b|kb|mb|gb)?\Z")
_SIZE_FACTORS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_DURATION = re.compile(r"(\d+)\s*(ms|s|min|h|d)?\Z")
_DURATION_FACTORS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Option(Generic[T]):
    """A configuration key as a typed attribute.

    Args:
        key: The key as users write it.
        default: The value when the key is not set.
        parse: Converts and checks a given value; is called with the key and the value.
        description: One sentence for the reference of all keys.
        secret: Whether no message and no pickle may show the value.
        no_effect: Why the key has no effect, if it is accepted only so that configurations of
            other Fluss clients can be used as they are. Setting it gives a warning.
    """

    def __init__(
        self,
        key: str,
        default: T,
        parse: Callable[[str, Any], T],
        description: str,
        *,
        secret: bool = False,
        no_effect: str = "",
    ) -> None:
        self.key = key
        self.default = default
        self.parse = parse
        self.description = description
        self.secret = secret
        self.no_effect = no_effect
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Option[T]: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> T | Option[T]:
        if instance is None:
            return self
        value: T = instance._values.get(self.key, self.default)
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        refused = self.store(instance, value)
        # The value may be a secret, and some error reports show the variables of each frame.
        del value
        if refused is not None:
            raise refused

    def store(self, instance: Any, value: Any, stacklevel: int = 3) -> ConfigError | None:
        """Set the value. Return why it cannot be used, as an error without a traceback."""
        try:
            instance._values[self.key] = self.parse(self.key, value)
        except ConfigError as error:
            return without_frames(error)
        if self.no_effect:
            message = f"{self.key} has no effect: {self.no_effect}; remove the key"
            warnings.warn(message, UserWarning, stacklevel=stacklevel)
        return None


def text(key: str, value: Any) -> str:
    """Parse any text."""
    if not isinstance(value, str):
        raise ConfigError(f"{key} takes text, not {type(value).__name__}")
    return value.strip()


def addresses(key: str, value: Any) -> str:
    """Parse the addresses of servers. One with a user or password is refused and not shown."""
    found = text(key, value)
    if "@" in found and not found.startswith(EMBEDDED_SCHEME):
        raise ConfigError(
            f"{key} holds an '@': an address takes no user and no password. Write host:port, and "
            "set security.protocol=sasl, security.sasl.username and security.sasl.password"
        )
    return found


def secret_text(key: str, value: Any) -> str:
    """Parse text that no message may show."""
    if not isinstance(value, str):
        raise ConfigError(f"{key} takes text")
    return value


def one_of(*allowed: str) -> Callable[[str, Any], str]:
    """Return a parser of one of a few words, in upper or lower case."""

    def parse(key: str, value: Any) -> str:
        for word in allowed:
            if str(value).strip().lower().replace("-", "_") == word.lower():
                return word
        raise ConfigError(f"{key} is one of {', '.join(allowed)}, not '{value}'")

    return parse


def boolean(key: str, value: Any) -> bool:
    """Parse true or false."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("true", "false"):
        return word == "true"
    raise ConfigError(f"{key} is true or false, not '{value}'")


def whole_number(low: int, high: int = (1 << 31) - 1) -> Callable[[str, Any], int]:
    """Return a parser of a whole number within bounds."""

    def parse(key: str, value: Any) -> int:
        try:
            number = int(str(value).strip())
        except ValueError:
            raise ConfigError(f"{key} takes a whole number, not '{value}'") from None
        return _bounded(key, number, low, high)

    return parse


def size(low: int, high: int = (1 << 31) - 1) -> Callable[[str, Any], int]:
    """Return a parser of a number of bytes: `2097152` or `2mb`."""

    def parse(key: str, value: Any) -> int:
        match = _SIZE.match(str(value).strip().lower())
        if match is None:
            raise ConfigError(f"{key} takes bytes such as 2097152 or 2mb, not '{value}'")
        number = int(match[1]) * _SIZE_FACTORS[match[2] or "b"]
        return _bounded(key, number, low, high)

    return parse


def duration_ms(low: int, high: int = UNBOUNDED_MS) -> Callable[[str, Any], int]:
    """Return a parser of a time: `500`, `500ms`, `30s`.

    Args:
        low: The smallest time that it accepts, in milliseconds.
        high: The largest time that it accepts, in milliseconds.
    """

    def parse(key: str, value: Any) -> int:
        match = _DURATION.match(str(value).strip().lower())
        if match is None:
            raise ConfigError(f"{key} takes a time such as 500ms or 30s, not '{value}'")
        return _bounded(key, int(match[1]) * _DURATION_FACTORS[match[2] or "ms"], low, high)

    return parse


def _bounded(key: str, number: int, low: int, high: int) -> int:
    if not low <= number <= high:
        raise ConfigError(f"{key} must lie between {low} and {high}, not {number}")
    return number
