"""Messages as buffers, and checks of generated messages that protobuf does not make.

The protobuf runtime accepts a message without its required fields, and returns `bytes` for a string
field that is not UTF-8. `parse` raises `CorruptDataError` for both, and for bytes that cannot be
parsed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TypeAlias, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from fluss_client.errors import CorruptDataError, FlussError, error_for

Buffer: TypeAlias = bytes | bytearray | memoryview
MessageT = TypeVar("MessageT", bound=Message)
UNKNOWN_SERVER_ERROR = -1


def byte_view(data: Buffer) -> memoryview:
    """Return a flat, read-only view of the same bytes, without a copy."""
    return memoryview(data).cast("B").toreadonly()


def byte_count(parts: Iterable[Buffer]) -> int:
    """Return the number of bytes in all parts; items of a memoryview may have several bytes."""
    return sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in parts)


def parse(cls: type[MessageT], body: Buffer) -> MessageT:
    """Parse a message and check its required fields and its texts."""
    try:
        # The runtime accepts any buffer; its type hints accept `bytes` only.
        message = cls.FromString(cast(bytes, body))
    except DecodeError as error:
        raise CorruptDataError(f"these bytes are no {cls.__name__}: {error}") from error
    if not message.IsInitialized():
        raise CorruptDataError(f"{cls.__name__} came without all of its required fields")
    _check_text(message)
    return message


def server_error(code: int, message: str | None) -> FlussError:
    """Return the typed error of a failed request; code 0 becomes an unknown error."""
    return error_for(code or UNKNOWN_SERVER_ERROR, message)


def part_error(code: int, message: str | None) -> FlussError | None:
    """Return the typed error of one part of an answer, or None for code 0 (success)."""
    return error_for(code, message) if code else None


@cache
def _text_paths(descriptor: Descriptor) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the string fields, and the message fields that contain string fields."""
    text = tuple(f.name for f in descriptor.fields if f.type == FieldDescriptor.TYPE_STRING)
    below = tuple(f.name for f in descriptor.fields if _holds_text(f, frozenset()))
    return text, below


def _holds_text(field: FieldDescriptor, seen: frozenset[str]) -> bool:
    inner = field.message_type
    if inner is None or inner.full_name in seen:
        return False
    seen |= {inner.full_name}
    return any(f.type == FieldDescriptor.TYPE_STRING or _holds_text(f, seen) for f in inner.fields)


def _check_text(message: Message) -> None:
    text, below = _text_paths(message.DESCRIPTOR)
    for name in text:
        value = getattr(message, name)
        # A repeated field is a list; an item that is not UTF-8 is `bytes`.
        broken = isinstance(value, bytes) or (
            not isinstance(value, str) and any(isinstance(item, bytes) for item in value)
        )
        if broken:
            raise CorruptDataError(f"{message.DESCRIPTOR.name}.{name} is not UTF-8")
    for name in below:
        value = getattr(message, name)
        for item in (value,) if isinstance(value, Message) else value:
            _check_text(item)
