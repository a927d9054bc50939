"""`DataType`, what every type must declare, and the register of all types.

Each type is a subclass of `DataType`, in the module of its family. The subclass declares all that
the rest of the package needs to know of the type: text and JSON form, Arrow type, layout in rows
and keys, texts in partition names, checks of Python values. It registers itself under its `Root`
as it is defined, and `DataType(Root.INTEGER)` gives an instance of it.

Text form: `decimal(10,2) NOT NULL`, `array<string>`, `map<string NOT NULL,bigint>`,
`row<a: int,b: string>`; `model.type_text` reads it back.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NoReturn

import pyarrow as pa

from fluss_client.errors import RowError
from fluss_client.model.types.layout import Layout

Json = dict[str, Any]
Check = Callable[[Any], Any]
"""From a Python value to the value to store; raises RowError if it does not fit."""
Maker = Callable[[Any], Any]
"""From a stored value to the Python value."""

UNUSUAL: Final[Any] = object()
"""What `to_stored` returns for a value that needs Arrow's conversion."""
SHOWN_CHARACTERS_MAX = 80


class Root(enum.Enum):
    """Which type it is; the value is its name in Fluss's JSON."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INTEGER = "INTEGER"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    CHAR = "CHAR"
    STRING = "STRING"
    BINARY = "BINARY"
    BYTES = "BYTES"
    DECIMAL = "DECIMAL"
    DATE = "DATE"
    TIME = "TIME_WITHOUT_TIME_ZONE"
    TIMESTAMP = "TIMESTAMP_WITHOUT_TIME_ZONE"
    TIMESTAMP_LTZ = "TIMESTAMP_WITH_LOCAL_TIME_ZONE"
    ARRAY = "ARRAY"
    MAP = "MAP"
    ROW = "ROW"


_CLASSES: dict[Root, type[DataType]] = {}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a ROW type.

    Attributes:
        name: The name of the field.
        type: The type of its values.
        description: A comment, or None.
        id: A number that stays the same for the field's whole life; -1 until a schema gives one.
    """

    name: str
    type: DataType
    description: str | None = None
    id: int = -1


@dataclass(frozen=True, slots=True)
class DataType:
    """One data type of Fluss. `DataTypes` makes them by name.

    Attributes:
        root: Which type it is.
        nullable: Whether a column of this type may hold nulls.
        length: The characters of a CHAR, the bytes of a BINARY.
        precision: The digits of a DECIMAL, the fraction digits of a TIME or TIMESTAMP.
        scale: The digits of a DECIMAL behind the point.
        element: The type of the elements of an ARRAY, or of the values of a MAP.
        key: The type of the keys of a MAP.
        fields: The fields of a ROW.

    Raises:
        SchemaError: The length, precision or scale is out of range.
    """

    names: ClassVar[tuple[str, ...]] = ()
    """The names of the type in SQL text, in upper case; the first one is written, all are read."""
    numbers: ClassVar[dict[str, int]] = {}
    """The attributes that are numbers in parentheses, with the values that SQL text may omit."""
    is_nested: ClassVar[bool] = False
    """Whether this is ARRAY, MAP or ROW."""
    is_sized: ClassVar[bool] = False
    """Whether the size of a value is that of its `len()`, and so may be large."""
    may_partition: ClassVar[bool] = True
    """Whether a column of this type can be a partition column."""
    literals: ClassVar[tuple[type, ...]] = ()
    """The Python types of the values that a predicate on the column takes; empty: none."""
    iceberg: ClassVar[str] = ""
    """The class of PyIceberg that stands for the type; empty if `model/iceberg.py` makes it."""
    own_root: ClassVar[Root]

    root: Root
    nullable: bool = True
    length: int = 0
    precision: int = 0
    scale: int = 0
    element: DataType | None = None
    key: DataType | None = None
    fields: tuple[Field, ...] = ()

    def __init_subclass__(cls, root: Root | None = None) -> None:
        if root is not None:
            cls.own_root = root
            _CLASSES[root] = cls

    def __new__(cls, root: Root | None = None, *args: Any, **kwargs: Any) -> DataType:
        return object.__new__(_CLASSES[root] if root is not None else cls)

    def __post_init__(self) -> None:
        self.validate()

    def __reduce__(self) -> tuple[Any, ...]:
        # By root and not by class, so that a pickle does not depend on the modules of the families.
        return DataType, (
            *(self.root, self.nullable, self.length, self.precision, self.scale),
            *(self.element, self.key, self.fields),
        )

    def __repr__(self) -> str:
        return (
            f"DataType(root={self.root!r}, nullable={self.nullable!r}, length={self.length!r}, "
            f"precision={self.precision!r}, scale={self.scale!r}, element={self.element!r}, "
            f"key={self.key!r}, fields={self.fields!r})"
        )

    def __str__(self) -> str:
        return self.text if self.nullable else f"{self.text} NOT NULL"

    # --- The value itself ---

    @classmethod
    def make(cls, nullable: bool = True, **attributes: Any) -> DataType:
        """Return a type of this class.

        Args:
            nullable: Whether values may be null.
            **attributes: The attributes of the type, such as `length` or `precision`.
        """
        return cls(cls.own_root, nullable, **attributes)

    @classmethod
    def examples(cls) -> list[DataType]:
        """Return types of this class, one for each layout and Arrow unit that it can have."""
        return [cls.make()]

    def validate(self) -> None:
        """Raise SchemaError if a length, precision or scale is out of range."""

    @property
    def characters_max(self) -> int | None:
        """The most characters that a text value may have; None if there is no limit."""
        return None

    def with_nullable(self, nullable: bool) -> DataType:
        """Return the same type, `nullable` or not."""
        return self if self.nullable == nullable else replace(self, nullable=nullable)

    def with_field_ids(self, next_id: Callable[[], int]) -> DataType:
        """Return the same type with an id from `next_id` for each ROW field in it, depth first."""
        del next_id
        return self

    @property
    def children(self) -> tuple[DataType, ...]:
        """The types directly inside a nested type; empty for all others."""
        return ()

    @property
    def is_compact(self) -> bool:
        """Whether a decimal, or a timestamp's fraction, fits one 64-bit number of its row form."""
        return True

    # --- Text, JSON, Arrow ---

    @property
    def text(self) -> str:
        """The type without its nullability, such as `decimal(10,2)`."""
        name = self.names[0].lower()
        numbers = ",".join(str(getattr(self, number)) for number in self.numbers)
        return f"{name}({numbers})" if numbers else name

    def to_json(self) -> Json:
        """Return the type as a JSON object; `nullable` is left out where it is true."""
        out: Json = {"type": self.root.value}
        if not self.nullable:
            out["nullable"] = False
        for number in self.numbers:
            out[number] = getattr(self, number)
        return out | self.children_to_json()

    @staticmethod
    def from_json(value: Json) -> DataType:
        """Return the type that a JSON object, the `value`, describes.

        Raises:
            KeyError: The object lacks a part of the type.
            TypeError: A part has the wrong JSON type.
            ValueError: There is no type of this name.
            SchemaError: A length, precision or scale is out of range.
        """
        cls = _CLASSES[Root(value["type"])]
        numbers = {number: json_integer(value[number]) for number in cls.numbers}
        nullable = value.get("nullable", True) is not False
        return cls.make(nullable, **cls.children_from_json(value), **numbers)

    def children_to_json(self) -> Json:
        """Return the part of the JSON object that describes the children of a nested type."""
        return {}

    @classmethod
    def children_from_json(cls, value: Json) -> dict[str, Any]:
        """Return the attributes that hold the children of a nested type, from its JSON `value`."""
        return {}

    def to_arrow(self, zone: str | None) -> pa.DataType:
        """Return the Arrow type; a TIMESTAMP_LTZ gets the time `zone`."""
        raise NotImplementedError

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        """Return the type of this class for an Arrow type, or None if it is not of this class.

        Args:
            arrow: The Arrow type.
            nullable: Whether values may be null.
            name: The column to name in an error.
        """
        raise NotImplementedError

    def why_not_cast(self, arrow: pa.DataType) -> str:
        """Say why an Arrow type must not be cast to this one, although Arrow calls the cast safe.

        Args:
            arrow: The type of the data that was given.

        Returns:
            The end of a sentence that begins with the name of the column, or empty text if the
            cast keeps the meaning of each value.
        """
        return ""

    # --- Rows, keys, partition names ---

    @property
    def layout(self) -> Layout:
        """How the type is stored in rows and keys."""
        raise NotImplementedError

    def to_stored(self, value: Any) -> Any:
        """Return a Python `value`, which is not None, in the form in which rows store it.

        Returns `UNUSUAL` for a value of another Python class than the usual one: Arrow must convert
        it.
        """
        raise NotImplementedError

    def maker(self) -> Maker:
        """Return a function from a stored value to the value that Arrow's `to_pylist` gives.

        The function raises CorruptDataError for a stored value that the type cannot have.
        """
        return _same

    @property
    def needs_arrow(self) -> bool:
        """Whether Python's own classes cannot hold its values, so that Arrow must make them."""
        return any(child.needs_arrow for child in self.children)

    def partition_texts(self, values: pa.Array) -> list[str]:
        """Return the texts of `values`, none of which is null, as partition names have them.

        Only types with `may_partition` implement it.
        """
        raise NotImplementedError

    # --- Python values ---

    def check(self, name: str) -> Check:
        """Return the check of a value of column `name` that is not None.

        Only what loses nothing is changed: an int for a float column, NumPy numbers, `bytearray`,
        a value of a subclass. Two exceptions follow the other Fluss clients: digits beyond the
        scale of a DECIMAL are rounded half up, and fractions finer than the precision of a
        TIMESTAMP are cut off.
        """
        raise NotImplementedError

    def exact_test(self, value: str) -> str | None:
        """Return Python source of a test that values of the usual class pass.

        Args:
            value: The name of the variable to test.

        Returns:
            An expression over `value`, `datetime` and `date` that is true only if the value can be
            stored as it is; None if every value needs its `check`.
        """
        return None

    def fits_literal(self, value: Any) -> bool:
        """Return whether a predicate can compare the column with `value`."""
        return isinstance(value, self.literals) and not isinstance(value, bool | dt.datetime)

    def checker(self, name: str, role: str = "field") -> Check:
        """Return the check of a value of column `name`, None included.

        Args:
            name: The column, or the path of a part of a nested column.
            role: What an error calls the part.
        """
        inner = self.check(name)
        if self.nullable:
            return lambda value: None if value is None else inner(value)

        def not_null(value: Any) -> Any:
            if value is None:
                field = name.rpartition(".")[2] if role == "row field" else name
                raise RowError(
                    f"column '{name}' is {self}: null or no value for the non-nullable {role} "
                    f"'{field}'"
                )
            return inner(value)

        return not_null

    def refuse(self, name: str, value: object, hint: str = "") -> NoReturn:
        """Raise RowError for a value that does not fit a column.

        Args:
            name: The name of the column.
            value: The value.
            hint: A text to add to the message.
        """
        kind = type(value).__name__
        raise RowError(f"column '{name}' is {self}: {shown(value)} ({kind}) does not fit{hint}")


def registered_types() -> Iterator[type[DataType]]:
    """Return the class of each type."""
    return iter(_CLASSES.values())


def require_arrow_map(map_name: str, arrow_ids: Container[int]) -> None:
    """Check that a map from Arrow's type ids has an entry for each data type.

    A module that maps the types to another system calls this as it is imported, so that a type that
    the map lacks is noticed by whoever adds the type.

    Args:
        map_name: The name of the other system, for the error.
        arrow_ids: The ids of the Arrow types that the map knows.

    Raises:
        NotImplementedError: The map lacks the Arrow type of a data type.
    """
    for cls in registered_types():
        for example in cls.examples():
            arrow = example.to_arrow("UTC")
            if arrow.id not in arrow_ids:
                raise NotImplementedError(
                    f"the map of data types to {map_name} has no entry for Arrow's {arrow}, which "
                    f"{example} needs"
                )


def shown(value: object) -> str:
    """Return a value as text for an error message, cut when it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"


def json_integer(value: Any) -> int:
    """Return the value if it is a whole number, else raise TypeError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected a whole number, found {type(value).__name__}")
    return value


def json_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else raise TypeError."""
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {type(value).__name__}")
    return value


def json_text(value: Any) -> str:
    """Return the value if it is text, else raise TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def json_optional_text(value: Json, key: str) -> str | None:
    """Return the text at a key, or None if there is none."""
    found = value.get(key)
    return None if found is None else json_text(found)


def _same(value: Any) -> Any:
    return value


class DataTypes:
    """Makes types by name, as the other clients of Fluss do."""

    @staticmethod
    def boolean() -> DataType:
        """Return BOOLEAN: Python's `bool`."""
        return DataType(Root.BOOLEAN)

    @staticmethod
    def tinyint() -> DataType:
        """Return TINYINT: an integer of 8 bits."""
        return DataType(Root.TINYINT)

    @staticmethod
    def smallint() -> DataType:
        """Return SMALLINT: an integer of 16 bits."""
        return DataType(Root.SMALLINT)

    @staticmethod
    def int() -> DataType:
        """Return INT: an integer of 32 bits."""
        return DataType(Root.INTEGER)

    @staticmethod
    def bigint() -> DataType:
        """Return BIGINT: an integer of 64 bits."""
        return DataType(Root.BIGINT)

    @staticmethod
    def float() -> DataType:
        """Return FLOAT: a floating-point number of 32 bits."""
        return DataType(Root.FLOAT)

    @staticmethod
    def double() -> DataType:
        """Return DOUBLE: a floating-point number of 64 bits, Python's `float`."""
        return DataType(Root.DOUBLE)

    @staticmethod
    def char(length: int) -> DataType:  # type: ignore[valid-type]
        """Return CHAR: text of at most `length` characters."""
        return DataType(Root.CHAR, length=length)

    @staticmethod
    def string() -> DataType:
        """Return STRING: text of any length."""
        return DataType(Root.STRING)

    @staticmethod
    def binary(length: int) -> DataType:  # type: ignore[valid-type]
        """Return BINARY: exactly `length` bytes."""
        return DataType(Root.BINARY, length=length)

    @staticmethod
    def bytes() -> DataType:
        """Return BYTES: any number of bytes."""
        return DataType(Root.BYTES)

    @staticmethod
    def decimal(precision: int, scale: int = 0) -> DataType:  # type: ignore[valid-type]
        """Return DECIMAL: `precision` digits (1 to 38), `scale` of them behind the point."""
        return DataType(Root.DECIMAL, precision=precision, scale=scale)

    @staticmethod
    def date() -> DataType:
        """Return DATE: Python's `datetime.date`."""
        return DataType(Root.DATE)

    @staticmethod
    def time(precision: int = 0) -> DataType:  # type: ignore[valid-type]
        """Return TIME: a time of day with `precision` fraction digits; Fluss stores at most 3."""
        return DataType(Root.TIME, precision=precision)

    @staticmethod
    def timestamp(precision: int = 6) -> DataType:  # type: ignore[valid-type]
        """Return TIMESTAMP: a date and time without a zone, with `precision` (0 to 9) digits."""
        return DataType(Root.TIMESTAMP, precision=precision)

    @staticmethod
    def timestamp_ltz(precision: int = 6) -> DataType:  # type: ignore[valid-type]
        """Return TIMESTAMP_LTZ: a moment in UTC, with `precision` fraction digits (0 to 9)."""
        return DataType(Root.TIMESTAMP_LTZ, precision=precision)

    @staticmethod
    def array(element: DataType) -> DataType:
        """Return ARRAY: a list of elements of the type `element`."""
        return DataType(Root.ARRAY, element=element)

    @staticmethod
    def map(key: DataType, value: DataType) -> DataType:
        """Return MAP: pairs of a key (of the type `key`, not null) and a value (`value`)."""
        return DataType(Root.MAP, key=key.with_nullable(False), element=value)

    @staticmethod
    def row(fields: Iterable[Field]) -> DataType:
        """Return ROW: named `fields`, each with a type of its own."""
        return DataType(Root.ROW, fields=tuple(fields))
