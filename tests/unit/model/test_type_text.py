"""Types read from text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.errors import SchemaError
from fluss_client.model.type_text import DEPTH_MAX, parse_type
from fluss_client.model.types import DataType, DataTypes, Field
from tests.unit.codec.type_values import TYPES

D = DataTypes
NESTED = D.row([Field("a", D.int()), Field("b", D.array(D.string().with_nullable(False)))])


@given(TYPES)
def test_a_types_own_text_reads_back(data_type: DataType) -> None:
    assert parse_type(f" {data_type} ") == data_type
    # Field names keep their case, all else is read in any.
    assert str(parse_type(str(data_type).upper())).lower() == str(data_type).lower()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("decimal(10,2) NOT NULL", D.decimal(10, 2).with_nullable(False)),
        ("DECIMAL", D.decimal(10, 0)),
        ("numeric(5)", D.decimal(5, 0)),
        ("integer", D.int()),
        ("Bool", D.boolean()),
        ("double precision", D.double()),
        ("varchar(255) not null", D.string().with_nullable(False)),
        ("varchar", D.string()),
        ("char(3)", D.char(3)),
        ("varbinary(16)", D.bytes()),
        ("binary(16)", D.binary(16)),
        ("time", D.time(0)),
        ("time(3) without time zone", D.time(3)),
        ("timestamp", D.timestamp(6)),
        ("timestamp(3) without time zone", D.timestamp(3)),
        ("timestamp(9) with local time zone", D.timestamp_ltz(9)),
        ("TIMESTAMP_LTZ(3) NULL", D.timestamp_ltz(3)),
        ("ARRAY<STRING>", D.array(D.string())),
        (
            "int not null array not null array",
            D.array(D.array(D.int().with_nullable(False)).with_nullable(False)),
        ),
        ("map<string, bigint>", D.map(D.string(), D.bigint())),
        ("row<a: int,b: array<string NOT NULL>>", NESTED),
        ("ROW(a INT, b ARRAY<STRING NOT NULL>)", NESTED),
        ('struct<`a`:int,"b" array<string not null>>', NESTED),
        (
            "row<x int 'it''s', y int comment 'z'>",
            D.row([Field("x", D.int(), "it's"), Field("y", D.int(), "z")]),
        ),
        ("row<>", D.row([])),
    ],
)
def test_spellings(text: str, expected: DataType) -> None:
    assert parse_type(text) == expected


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("", 0, "expected a type"),
        ("  ", 0, "expected a type"),
        ("uuid", 0, "expected a type, found 'uuid'"),
        ("int not", 4, "expected the end"),
        ("int int", 4, "expected the end, found 'int'"),
        ("array<int", 9, "expected '>', found the end"),
        ("array int", 6, "expected '<'"),
        ("map<int>", 7, "expected ','"),
        ("decimal(1,2,3)", 12, "expected a number"),
        ("decimal(2,5)", 0, "precision is 1 to 38"),
        ("array<decimal(99,1)>", 6, "precision is 1 to 38"),
        ("timestamp(10)", 0, "0 to 9"),
        ("char(0)", 0, "at least 1"),
        ("char(3000000000)", 5, "numbers go up to"),
        ("timestamp with time zone", 10, "expected the end"),
        ("row<a int, a int>", 3, "occurs twice"),
        ("row<a int b int>", 10, "expected ','"),
        ("row<1 int>", 4, "expected a field name"),
        ("row int", 4, "expected '<'"),
        ("int;", 3, "cannot be read"),
        ("array<" * (DEPTH_MAX + 1) + "int", 6 * DEPTH_MAX, "nest deeper"),
    ],
)
def test_errors_say_where(text: str, at: int, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_type(text)
    assert f"at character {at}:" in caught.value.message
    assert message in caught.value.message


WORDS = st.sampled_from(
    [
        "int",
        "array",
        "map",
        "row",
        "<",
        ">",
        "(",
        ")",
        ",",
        ":",
        "not",
        "null",
        "3",
        "'x'",
        "a",
        "decimal",
    ]
)


@given(st.text(max_size=40) | st.lists(WORDS, max_size=15).map(" ".join))
def test_any_text_is_a_type_or_a_typed_error(text: str) -> None:
    try:
        found = parse_type(text)
    except SchemaError:
        return
    assert isinstance(found, DataType)
