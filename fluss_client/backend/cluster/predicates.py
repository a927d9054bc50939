"""Conditions of a log scan as messages, for servers that leave out batches (Fluss 1.0).

The server decides by the statistics of a batch, and only whole batches are left out. What cannot
be said exactly is not said: a part of `&` may be missing, because the client tests every row
anyway, and then the server leaves out less. Comparisons of FLOAT and DOUBLE are not sent, because
statistics say nothing about NaN, and neither are those of TIME.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from fluss_client.model.predicate import Predicate
from fluss_client.model.schema import Schema
from fluss_client.model.types import DataType, Root
from fluss_client.wire import fluss_pb2 as pb

LEAF, COMPOUND = 0, 1
FUNCTIONS = {
    "==": 0,
    "!=": 1,
    "<": 2,
    "<=": 3,
    ">": 4,
    ">=": 5,
    "is_null": 6,
    "is_not_null": 7,
    "starts_with": 8,
    "contains": 9,
    "ends_with": 10,
    "is_in": 11,
    "not_in": 12,
}
JOINS = {"&": 0, "|": 1}
LITERAL_TYPES = {
    Root.BOOLEAN: 0,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INTEGER: 3,
    Root.BIGINT: 4,
    Root.CHAR: 7,
    Root.STRING: 8,
    Root.DECIMAL: 9,
    Root.DATE: 10,
    Root.TIMESTAMP: 12,
    Root.TIMESTAMP_LTZ: 13,
    Root.BINARY: 14,
    Root.BYTES: 15,
}
COMPACT_DIGITS_MAX = 18
_EPOCH = dt.datetime(1970, 1, 1)


def predicate_pb(predicate: Predicate, schema: Schema) -> pb.PbPredicate | None:
    """Return a condition as a message; None if nothing of it can be sent.

    The message may be true for more rows than the condition, never for fewer.
    """
    if not predicate.children:
        leaf = _leaf(predicate, schema)
        return None if leaf is None else pb.PbPredicate(type=LEAF, leaf=leaf)
    children = [predicate_pb(child, schema) for child in predicate.children]
    sent = [child for child in children if child is not None]
    if not sent or (predicate.function == "|" and len(sent) < len(children)):
        return None
    if len(sent) == 1:
        return sent[0]
    compound = pb.PbCompoundPredicate(function=JOINS[predicate.function], children=sent)
    return pb.PbPredicate(type=COMPOUND, compound=compound)


def _leaf(predicate: Predicate, schema: Schema) -> pb.PbLeafPredicate | None:
    column = schema.column(predicate.column)
    if column.type.root not in LITERAL_TYPES:
        return None
    literals = []
    for value in predicate.literals:
        literal = _literal(column.type, value)
        if literal is None:
            return None
        literals.append(literal)
    return pb.PbLeafPredicate(
        function=FUNCTIONS[predicate.function], field_id=column.id, literals=literals
    )


def _literal(kind: DataType, value: Any) -> pb.PbLiteralValue | None:
    root = kind.root
    message = pb.PbLiteralValue(literal_type=LITERAL_TYPES[root], is_null=False)
    if root is Root.BOOLEAN:
        message.boolean_value = value
    elif root in (Root.TINYINT, Root.SMALLINT, Root.INTEGER):
        message.int_value = value
    elif root is Root.BIGINT:
        message.bigint_value = value
    elif root in (Root.CHAR, Root.STRING):
        message.string_value = value
    elif root in (Root.BINARY, Root.BYTES):
        message.binary_value = value
    elif root is Root.DATE:
        message.bigint_value = (value - _EPOCH.date()).days
    elif root is Root.DECIMAL:
        return _with_decimal(message, kind, value)
    else:
        moment = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        micros = (moment - _EPOCH) // dt.timedelta(microseconds=1)
        message.timestamp_millis_value = micros // 1000
        message.timestamp_nano_of_millis_value = micros % 1000 * 1000
    return message


def _with_decimal(
    message: pb.PbLiteralValue, kind: DataType, value: Decimal
) -> pb.PbLiteralValue | None:
    if not value.is_finite():
        return None
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + (kind.scale or 0)
    whole = int("".join(map(str, digits)) or "0")
    if shift < 0:
        if whole % 10**-shift:
            # The column cannot have this value: a rounded one would move the bound.
            return None
        unscaled = whole // 10**-shift
    else:
        unscaled = whole * 10**shift
    precision = kind.precision or 0
    if unscaled >= 10**precision:
        return None
    unscaled = -unscaled if sign else unscaled
    if precision <= COMPACT_DIGITS_MAX:
        message.decimal_value = unscaled
    else:
        # One bit for the sign, as Java's BigInteger has it.
        size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        message.decimal_bytes = unscaled.to_bytes(size, "big", signed=True)
    return message
