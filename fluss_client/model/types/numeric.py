"""BOOLEAN, integers, floating-point numbers and DECIMAL.

Floating-point numbers in partition names are written as Java's Float.toString and Double.toString
write them. The digits are the shortest that read back as the same number, but at least two: `1.0`,
`1.0E10`. A number with a magnitude from 10^-3 up to, not including, 10^7 is written plainly, any
other one with an exponent. This is what Java 19 and later write, digit for digit; older ones
sometimes write a digit more than needed.
"""

from __future__ import annotations

import decimal
import math
import numbers
import operator
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from fluss_client.errors import CorruptDataError, SchemaError
from fluss_client.model.types.base import UNUSUAL, Check, DataType, Maker, Root
from fluss_client.model.types.layout import IcebergKey, Kind, Layout, int32_layout, int64_layout

FLOAT32_MAX = 3.4028234663852886e38
DECIMAL_PRECISION_MAX = 38
DECIMAL_BYTES_MAX = 16
COMPACT_DECIMAL_PRECISION_MAX = 18
PLAIN_EXPONENTS = range(-3, 7)

_ROUNDING = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP)
_SINGLE = struct.Struct("<f")
_INT64_HIGH = 1 << 63


class _FixedArrowType(DataType):
    """A type that always has the same Arrow type."""

    arrow: ClassVar[pa.DataType]

    def to_arrow(self, zone: str | None) -> pa.DataType:
        del zone
        return self.arrow

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        return cls.make(nullable) if arrow.equals(cls.arrow) else None


class BooleanType(_FixedArrowType, root=Root.BOOLEAN):
    """BOOLEAN."""

    names = ("BOOLEAN", "BOOL")
    iceberg = "BooleanType"
    literals = (bool,)
    arrow = pa.bool_()
    layout = Layout(Kind.RAW, "<u1", struct.Struct("<?"))

    def to_stored(self, value: Any) -> Any:
        return value if value is True or value is False else UNUSUAL

    def partition_texts(self, values: pa.Array) -> list[str]:
        return ["true" if value else "false" for value in values.to_pylist()]

    def check(self, name: str) -> Check:
        def check(value: Any) -> bool:
            if isinstance(value, bool | np.bool_):
                return bool(value)
            self.refuse(name, value, "; give True or False")

        return check

    def exact_test(self, value: str) -> str | None:
        return f"type({value}) is bool"

    def fits_literal(self, value: Any) -> bool:
        return isinstance(value, bool)


class _IntegerType(_FixedArrowType):
    """An integer in two's complement."""

    high: ClassVar[int]
    """The first number that is too large."""
    literals = (int,)

    def to_stored(self, value: Any) -> Any:
        return value if type(value) is int and -self.high <= value < self.high else UNUSUAL

    def partition_texts(self, values: pa.Array) -> list[str]:
        return [str(value) for value in values.to_pylist()]

    def check(self, name: str) -> Check:
        high = self.high

        def check(value: Any) -> int:
            if isinstance(value, bool | np.bool_):
                self.refuse(name, value, "; give 0 or 1")
            try:
                number = operator.index(value)
            except TypeError:
                self.refuse(name, value)
            if not -high <= number < high:
                self.refuse(name, value, f"; it takes {-high} to {high - 1}")
            return number

        return check

    def exact_test(self, value: str) -> str | None:
        return f"type({value}) is int and {-self.high} <= {value} < {self.high}"

    def fits_literal(self, value: Any) -> bool:
        return super().fits_literal(value) and -self.high <= value < self.high


class TinyIntType(_IntegerType, root=Root.TINYINT):
    """TINYINT: 8 bits."""

    names = ("TINYINT", "BYTE", "INT8")
    iceberg = "IntegerType"
    high = 1 << 7
    arrow = pa.int8()
    layout = Layout(Kind.RAW, "<i1", struct.Struct("<b"))


class SmallIntType(_IntegerType, root=Root.SMALLINT):
    """SMALLINT: 16 bits."""

    names = ("SMALLINT", "SHORT", "INT16")
    iceberg = "IntegerType"
    high = 1 << 15
    arrow = pa.int16()
    layout = Layout(Kind.RAW, "<i2", struct.Struct("<h"))


class IntType(_IntegerType, root=Root.INTEGER):
    """INT: 32 bits."""

    names = ("INT", "INTEGER", "INT32")
    iceberg = "IntegerType"
    high = 1 << 31
    arrow = pa.int32()
    layout = int32_layout(IcebergKey.INT64)


class BigIntType(_IntegerType, root=Root.BIGINT):
    """BIGINT: 64 bits."""

    names = ("BIGINT", "LONG", "INT64")
    iceberg = "LongType"
    high = 1 << 63
    arrow = pa.int64()
    layout = int64_layout(IcebergKey.INT64)


class _FloatingType(_FixedArrowType):
    """A binary floating-point number."""

    most: ClassVar[float]
    """The largest finite number."""
    literals = (float, int)

    def why_not_cast(self, arrow: pa.DataType) -> str:
        return f"{self}, not {arrow}: cast it as you mean it" if pa.types.is_decimal(arrow) else ""

    def check(self, name: str) -> Check:
        most = self.most

        def check(value: Any) -> float:
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                self.refuse(name, value)
            try:
                number = float(value)
            except OverflowError:
                self.refuse(name, value, "; it is too large")
            if math.isfinite(number) and abs(number) > most:
                self.refuse(name, value, "; it is too large")
            return number

        return check

    def fits_literal(self, value: Any) -> bool:
        if not super().fits_literal(value):
            return False
        return isinstance(value, float) or -_INT64_HIGH <= value < _INT64_HIGH


class FloatType(_FloatingType, root=Root.FLOAT):
    """FLOAT: 32 bits."""

    names = ("FLOAT", "REAL", "FLOAT32")
    iceberg = "FloatType"
    most = FLOAT32_MAX
    arrow = pa.float32()
    layout = Layout(Kind.RAW, "<f4", _SINGLE, iceberg_key=IcebergKey.STORED)

    def to_stored(self, value: Any) -> Any:
        try:
            return _SINGLE.unpack(_SINGLE.pack(value))[0] if type(value) is float else UNUSUAL
        except OverflowError:
            return UNUSUAL

    def partition_texts(self, values: pa.Array) -> list[str]:
        return [_partition_text(float_text(value)) for value in values.to_pylist()]

    def exact_test(self, value: str) -> str | None:
        return f"type({value}) is float and {-self.most!r} <= {value} <= {self.most!r}"


class DoubleType(_FloatingType, root=Root.DOUBLE):
    """DOUBLE: 64 bits."""

    names = ("DOUBLE", "FLOAT64")
    iceberg = "DoubleType"
    most = math.inf
    arrow = pa.float64()
    layout = Layout(Kind.RAW, "<f8", struct.Struct("<d"), iceberg_key=IcebergKey.STORED)

    def to_stored(self, value: Any) -> Any:
        return value if type(value) is float else UNUSUAL

    def partition_texts(self, values: pa.Array) -> list[str]:
        return [_partition_text(double_text(value)) for value in values.to_pylist()]

    def exact_test(self, value: str) -> str | None:
        return f"type({value}) is float"


class DecimalType(DataType, root=Root.DECIMAL):
    """DECIMAL: `precision` digits, `scale` of them behind the point.

    Up to 18 digits a row stores the unscaled value as a 64-bit number; above, as its shortest
    big-endian two's complement.
    """

    names = ("DECIMAL", "NUMERIC", "DEC")
    numbers: ClassVar[dict[str, int]] = {"precision": 10, "scale": 0}
    may_partition = False
    literals = (Decimal,)
    _compact = int64_layout(IcebergKey.UNSCALED)
    _wide = Layout(Kind.DECIMAL, iceberg_key=IcebergKey.UNSCALED)

    @classmethod
    def examples(cls) -> list[DataType]:
        return [cls.make(precision=10, scale=2), cls.make(precision=38, scale=10)]

    def validate(self) -> None:
        if not (1 <= self.precision <= DECIMAL_PRECISION_MAX and 0 <= self.scale <= self.precision):
            raise SchemaError(
                f"decimal({self.precision},{self.scale}): precision is 1 to 38, scale at most that"
            )

    @property
    def is_compact(self) -> bool:
        return self.precision <= COMPACT_DECIMAL_PRECISION_MAX

    def to_arrow(self, zone: str | None) -> pa.DataType:
        del zone
        return pa.decimal128(self.precision, self.scale)

    def why_not_cast(self, arrow: pa.DataType) -> str:
        return f"{self}, not {arrow}: cast it as you mean it" if pa.types.is_floating(arrow) else ""

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        if not pa.types.is_decimal128(arrow):
            return None
        return cls.make(nullable, precision=arrow.precision, scale=arrow.scale)

    @property
    def layout(self) -> Layout:
        return self._compact if self.precision <= COMPACT_DECIMAL_PRECISION_MAX else self._wide

    def to_stored(self, value: Any) -> Any:
        if type(value) is not Decimal:
            return UNUSUAL
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or not -self.scale <= exponent <= 0:
            return UNUSUAL
        unscaled = int("".join(map(str, digits))) * 10 ** (exponent + self.scale)
        if unscaled >= 10**self.precision:
            return UNUSUAL
        if sign:
            unscaled = -unscaled
        return unscaled if self.is_compact else shortest_bytes(unscaled)

    def maker(self) -> Maker:
        limit, scale = 10**self.precision, self.scale

        def make(unscaled: int) -> Decimal:
            if not -limit < unscaled < limit:
                raise CorruptDataError(f"a number is too large for {self.text}")
            # From text, because arithmetic would round to the context's precision.
            return Decimal(f"{unscaled}E-{scale}")

        def make_from_bytes(value: bytes) -> Decimal:
            if not 1 <= len(value) <= DECIMAL_BYTES_MAX:
                raise CorruptDataError("a decimal has no bytes, or more than 16")
            return make(int.from_bytes(value, "big", signed=True))

        return make if self.is_compact else make_from_bytes

    def check(self, name: str) -> Check:
        unit = Decimal(1).scaleb(-self.scale)
        limit = Decimal(10) ** (self.precision - self.scale)

        def check(value: Any) -> Decimal:
            if not isinstance(value, Decimal) or not value.is_finite():
                self.refuse(name, value, "; give a finite decimal.Decimal")
            if value.adjusted() <= self.precision:
                fitted = value.quantize(unit, context=_ROUNDING)
                if -limit < fitted < limit:
                    return fitted
            self.refuse(name, value, "; it has too many digits")

        return check

    def fits_literal(self, value: Any) -> bool:
        if not isinstance(value, Decimal) or not value.is_finite():
            return False
        _, digits, exponent = value.normalize().as_tuple()
        assert isinstance(exponent, int)
        whole_digits = len(digits) + exponent
        return -exponent <= self.scale and whole_digits <= self.precision - self.scale


def shortest_bytes(unscaled: int) -> bytes:
    """Return a number as its shortest big-endian two's complement."""
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def double_text(value: float) -> str:
    """Return what Java's Double.toString writes."""
    if not math.isfinite(value):
        return _not_finite(value)
    value = float(value)
    return _digits_text(value, repr(value), lambda text: float(text) == value)


def float_text(value: float) -> str:
    """Return what Java's Float.toString writes for a number that fits 32 bits."""
    single = np.float32(value)
    if not np.isfinite(single):
        return _not_finite(value)
    shortest = np.format_float_scientific(single, unique=True, trim="-")
    return _digits_text(float(single), shortest, lambda text: bool(np.float32(text) == single))


def _partition_text(text: str) -> str:
    return text.replace("Infinity", "Inf").replace(".", "_")


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _digits_text(value: float, shortest: str, same: Callable[[str], bool]) -> str:
    digits, exponent = _digits(shortest)
    if len(digits) == 1:
        # Java writes two digits at least and takes the two that are closest, such as 4.9E-324.
        two = f"{value:.1e}"
        digits, exponent = _digits(two if same(two) else shortest)
        digits = digits.ljust(2, "0")
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{sign}0.0"
    if exponent not in PLAIN_EXPONENTS:
        return f"{sign}{digits[0]}.{digits[1:]}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits.rstrip('0')}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"


def _digits(text: str) -> tuple[str, int]:
    """Return the significant digits without a point, and the exponent of the first one."""
    mantissa, _, exponent = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    leading = len(digits) - len(digits.lstrip("0"))
    found = digits.strip("0")
    return found or "0", int(exponent or 0) + len(whole) - 1 - leading
