"""Text and bytes: CHAR, STRING, BINARY and BYTES."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from fluss_client.errors import CorruptDataError, SchemaError
from fluss_client.model.types.base import UNUSUAL, Check, DataType, Maker, Root
from fluss_client.model.types.layout import IcebergKey, Kind, Layout

_VARIABLE = Layout(Kind.BYTES, iceberg_key=IcebergKey.STORED)
_PADDED_BYTES = Layout(Kind.BYTES, padded=True, iceberg_key=IcebergKey.STORED)
_PADDED_TEXT = Layout(Kind.BYTES, padded=True, strips_padding=True, iceberg_key=IcebergKey.STORED)


class StringType(DataType, root=Root.STRING):
    """STRING: text of any length."""

    names = ("STRING", "TEXT")
    iceberg = "StringType"
    is_sized = True
    literals = (str,)
    layout = _VARIABLE

    def to_arrow(self, zone: str | None) -> pa.DataType:
        del zone
        return pa.string()

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        is_ = pa.types
        found = is_.is_string(arrow) or is_.is_large_string(arrow) or is_.is_string_view(arrow)
        return cls.make(nullable) if found else None

    def to_stored(self, value: Any) -> Any:
        if type(value) is not str:
            return UNUSUAL
        try:
            return value.encode()
        except UnicodeEncodeError:
            return UNUSUAL

    def maker(self) -> Maker:
        return _decoded

    def partition_texts(self, values: pa.Array) -> list[str]:
        return [str(value) for value in values.to_pylist()]

    def check(self, name: str) -> Check:
        limit = self.length

        def check(value: Any) -> str:
            if not isinstance(value, str):
                self.refuse(name, value)
            try:
                value.encode()
            except UnicodeEncodeError:
                self.refuse(name, value, "; it is not valid Unicode text")
            if limit and len(value) > limit:
                self.refuse(name, value, f"; it takes {limit} characters")
            return str.__str__(value)  # of a subclass too, whatever its own __str__ says

        return check

    def exact_test(self, value: str) -> str | None:
        return f"type({value}) is str and {value}.isascii()"


class CharType(StringType, root=Root.CHAR):
    """CHAR: text of at most `length` characters."""

    names = ("CHAR", "CHARACTER")
    iceberg = "StringType"
    numbers: ClassVar[dict[str, int]] = {"length": 1}
    layout = _PADDED_TEXT

    @classmethod
    def examples(cls) -> list[DataType]:
        return [cls.make(length=8)]

    def validate(self) -> None:
        _check_length(self)

    @property
    def characters_max(self) -> int | None:
        return self.length

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        return None  # Arrow's text has no bound: it is a STRING

    def exact_test(self, value: str) -> str | None:
        return f"{super().exact_test(value)} and len({value}) <= {self.length}"


class BytesType(DataType, root=Root.BYTES):
    """BYTES: any number of bytes."""

    names = ("BYTES",)
    iceberg = "BinaryType"
    is_sized = True
    literals = (bytes,)
    layout = _VARIABLE

    def to_arrow(self, zone: str | None) -> pa.DataType:
        del zone
        return pa.binary()

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        is_ = pa.types
        found = is_.is_binary(arrow) or is_.is_large_binary(arrow) or is_.is_binary_view(arrow)
        return cls.make(nullable) if found else None

    def to_stored(self, value: Any) -> Any:
        return value if type(value) is bytes else UNUSUAL

    def partition_texts(self, values: pa.Array) -> list[str]:
        return [value.hex() for value in values.to_pylist()]

    def check(self, name: str) -> Check:
        exact = self.length

        def check(value: Any) -> bytes:
            if not isinstance(value, bytes | bytearray | memoryview):
                self.refuse(name, value)
            data = bytes(value)
            if exact and len(data) != exact:
                self.refuse(name, value, f"; it takes exactly {exact} bytes, not {len(data)}")
            return data

        return check

    def exact_test(self, value: str) -> str | None:
        return f"type({value}) is bytes"


class BinaryType(BytesType, root=Root.BINARY):
    """BINARY: exactly `length` bytes."""

    names = ("BINARY",)
    iceberg = "BinaryType"
    numbers: ClassVar[dict[str, int]] = {"length": 1}
    is_sized = False
    layout = _PADDED_BYTES

    @classmethod
    def examples(cls) -> list[DataType]:
        return [cls.make(length=8)]

    def validate(self) -> None:
        _check_length(self)

    def to_arrow(self, zone: str | None) -> pa.DataType:
        del zone
        return pa.binary(self.length)

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        found = pa.types.is_fixed_size_binary(arrow)
        return cls.make(nullable, length=arrow.byte_width) if found else None

    def to_stored(self, value: Any) -> Any:
        # Shorter than declared is stored as it is: other clients write such keys.
        return value if type(value) is bytes and len(value) <= self.length else UNUSUAL

    def maker(self) -> Maker:
        length = self.length

        def make(value: bytes) -> bytes:
            if len(value) > length:
                raise CorruptDataError(f"more bytes than {self.text} holds")
            return value.ljust(length, b"\0")

        return make

    def exact_test(self, value: str) -> str | None:
        return None


def _decoded(value: bytes) -> str:
    return value.decode()


def _check_length(data_type: DataType) -> None:
    if data_type.length < 1:
        name = data_type.root.value
        raise SchemaError(f"{name} needs a length of at least 1, not {data_type.length}")
