"""What the tests of hand-made protobuf share: unknown fields, mutations, nested raw messages."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError, Message
from hypothesis import settings
from hypothesis import strategies as st

from fluss_client.errors import CorruptDataError
from fluss_client.wire.hot.fields import varint

# A busy machine must not fail a test; how long an example takes is a benchmark's question.
untimed = settings(deadline=None)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def delimited(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def _field(number: int, kind: int, number_value: int, payload: bytes) -> bytes:
    tag = varint(number << 3 | kind)
    if kind == 0:
        return tag + varint(number_value)
    if kind == 2:
        return delimited(number, payload)
    if kind == 3:
        inner = delimited(7, payload) + varint(9 << 3) + varint(number_value)
        return tag + inner + varint(number << 3 | 4)
    return tag + bytes(8 if kind == 1 else 4)


# Fields that no message has, of every wire type; "" most of the time.
unknown_fields = st.lists(
    st.builds(
        _field,
        st.integers(20, 5000),
        st.sampled_from([0, 1, 2, 3, 5]),
        INT64,
        st.binary(max_size=9),
    ),
    max_size=2,
).map(b"".join)


def mutate(raw: bytes, seed: int) -> bytes:
    """Some bytes changed, cut, doubled or moved; the same seed gives the same change."""
    dice = random.Random(seed)
    data = bytearray(raw)
    for _ in range(dice.randint(1, 4)):
        if not data:
            break
        at = dice.randrange(len(data))
        to = dice.randint(at, min(len(data), at + 8))
        action = dice.randrange(5)
        if action == 0:
            data[at] ^= 1 << dice.randrange(8)
        elif action == 1:
            data[at] = dice.choice([0x00, 0x08, 0x0A, 0x10, 0x12, 0x1A, 0x22, 0x2A, 0x80, 0xFF])
        elif action == 2:
            del data[at:to]
        elif action == 3:
            data[at:at] = data[at:to]
        else:
            del data[at:]
    return bytes(data)


def agrees(
    cls: type[Message], decode: Callable[[bytes], Any], same: Callable[[Any, Any], bool], raw: bytes
) -> bool:
    """Whether `decode` accepts exactly what the generated code accepts, with the same values."""
    try:
        expected = cls.FromString(raw)
        accepted = expected.IsInitialized()
    except DecodeError:
        accepted = False
    try:
        found = decode(raw)
    except CorruptDataError as error:
        return not accepted or "UTF-8" in error.message
    return accepted and same(expected, found)


def shown(text: str | bytes) -> str:
    """Text as the hand-made readers give it; the runtime leaves broken UTF-8 as bytes."""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
