"""Reads types as text: Fluss's own form and the common SQL spellings, in any case.

    type      name [ "(" number ["," number] ")" ] [ "<" children ">" ] [ ["NOT"] "NULL" ]
    array     array<T>, T array
    map       map<K, V>
    row       row<a T, b: T NOT NULL 'comment', ...>, also struct<...> and row(...)

Names with other characters than letters, digits and `_` are written in backticks or double quotes.
VARCHAR and VARBINARY become STRING and BYTES, whatever their length: Fluss does not bound them.
Each type declares its names and its numbers; this module knows the grammar only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fluss_client.errors import SchemaError
from fluss_client.model.types import (
    ArrayType,
    DataType,
    DataTypes,
    Field,
    MapType,
    RowType,
    TimestampLtzType,
    TimestampType,
    TimeType,
    registered_types,
)

DEPTH_MAX = 64
"""How deep types may nest: a bound on the recursion over text that a user gives."""
_NUMBER_MAX = (1 << 31) - 1

_TypeClass = type[DataType]
_NAMED = {name: cls for cls in registered_types() for name in cls.names}
_WITHOUT_LENGTH: dict[str, DataType] = {
    "VARCHAR": DataTypes.string(),
    "VARBINARY": DataTypes.bytes(),
}
"""SQL types whose length Fluss does not have."""
_ZONES: dict[tuple[str, ...], _TypeClass] = {
    ("WITHOUT", "TIME", "ZONE"): TimestampType,
    ("WITH", "LOCAL", "TIME", "ZONE"): TimestampLtzType,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>\d{1,10})|(?P<quoted>`[^`]+`|\"[^\"]+\")"
    r"|(?P<text>'(?:[^']|'')*')|(?P<mark>[<>(),:]))"
)
_OPENING = {"<": ">", "(": ")"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind in ("word", "mark") else ""


def parse_type(text: str) -> DataType:
    """Return the type that a `text` such as `DECIMAL(10, 2) NOT NULL` names.

    Raises:
        SchemaError: The text names no type; the error says what is wrong and at which character.
    """
    reader = _Reader(text)
    data_type = reader.type()
    reader.end()
    return data_type


class _Reader:
    """A recursive-descent reader over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_scan(text))
        self.next = 0
        self.depth = 0

    def peek(self, ahead: int = 0) -> _Token:
        at = self.next + ahead
        return self.tokens[min(at, len(self.tokens) - 1)]

    def take(self) -> _Token:
        token = self.peek()
        self.next += 1
        return token

    def accept(self, *words: str) -> bool:
        """Take these words or marks if they come next."""
        if all(self.peek(i).upper == word for i, word in enumerate(words)):
            self.next += len(words)
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.accept(mark):
            raise self.wrong(f"expected '{mark}'")

    def end(self) -> None:
        if self.peek().kind != "end":
            raise self.wrong("expected the end")

    def wrong(self, message: str, token: _Token | None = None) -> SchemaError:
        token = token or self.peek()
        found = f"'{token.text}'" if token.text else "the end"
        return SchemaError(f"type '{self.text}', at character {token.at}: {message}, found {found}")

    def type(self) -> DataType:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.wrong(f"types nest deeper than {DEPTH_MAX}")
        start = self.peek()
        try:
            data_type = self.nullability(self.named())
            while self.accept("ARRAY"):
                data_type = self.nullability(DataTypes.array(data_type))
        except SchemaError as error:
            if "at character" in error.message:
                raise
            # A length or precision that no type has.
            raise self.wrong(error.message, start) from None
        self.depth -= 1
        return data_type

    def nullability(self, data_type: DataType) -> DataType:
        if self.accept("NOT", "NULL"):
            return data_type.with_nullable(False)
        self.accept("NULL")
        return data_type

    def named(self) -> DataType:
        token = self.peek()
        if token.kind != "word":
            raise self.wrong("expected a type")
        self.take()
        name = token.upper
        if name == "DOUBLE":
            self.accept("PRECISION")
        if name in _WITHOUT_LENGTH:
            self.numbers(1)
            return _WITHOUT_LENGTH[name]
        found = _NAMED.get(name)
        if found is None:
            raise self.wrong("expected a type", token)
        if found is ArrayType:
            return self.array()
        if found is MapType:
            return self.map()
        if found is RowType:
            return self.row()
        return self.plain(found)

    def plain(self, found: _TypeClass) -> DataType:
        given = self.numbers(len(found.numbers)) if found.numbers else []
        numbers = dict(found.numbers) | dict(zip(found.numbers, given, strict=False))
        for words, zoned in _ZONES.items():
            # A time of day may be said to have no zone, but it has none anyway.
            if found in (TimeType, TimestampType, TimestampLtzType) and self.accept(*words):
                found = zoned if found is TimestampType else found
        return found.make(True, **numbers)

    def array(self) -> DataType:
        self.expect("<")
        element = self.type()
        self.expect(">")
        return DataTypes.array(element)

    def map(self) -> DataType:
        self.expect("<")
        key = self.type()
        self.expect(",")
        value = self.type()
        self.expect(">")
        return DataTypes.map(key, value)

    def numbers(self, most: int) -> list[int]:
        """Read up to `most` numbers in parentheses; an empty list if there are none."""
        if not self.accept("("):
            return []
        found: list[int] = []
        while True:
            token = self.take()
            if token.kind != "number" or len(found) == most:
                raise self.wrong("expected a number", token)
            if int(token.text) > _NUMBER_MAX:
                raise self.wrong(f"numbers go up to {_NUMBER_MAX}", token)
            found.append(int(token.text))
            if not self.accept(","):
                break
        self.expect(")")
        return found

    def row(self) -> DataType:
        opening = self.take()
        closing = _OPENING.get(opening.text)
        if closing is None:
            raise self.wrong("expected '<'", opening)
        fields: list[Field] = []
        while not self.accept(closing):
            if fields:
                self.expect(",")
            fields.append(self.field())
        names = [field.name for field in fields]
        if len(set(names)) != len(names):
            raise self.wrong("a field name occurs twice in the row", opening)
        return DataTypes.row(fields)

    def field(self) -> Field:
        token = self.take()
        if token.kind not in ("word", "quoted"):
            raise self.wrong("expected a field name", token)
        name = token.text if token.kind == "word" else token.text[1:-1]
        self.accept(":")
        data_type = self.type()
        comment = None
        self.accept("COMMENT")
        if self.peek().kind == "text":
            comment = self.take().text[1:-1].replace("''", "'")
        return Field(name, data_type, comment)


def _scan(text: str) -> list[_Token]:
    tokens = []
    at = 0
    length = len(text.rstrip())
    while at < length:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise SchemaError(f"type '{text}', at character {at}: cannot be read")
        tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        at = match.end()
    tokens.append(_Token("end", "", length))
    return tokens
