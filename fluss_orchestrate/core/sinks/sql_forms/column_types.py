"""What the columns of a table that exists do to values: keep them, change them, or merge keys.

PostgreSQL rounds, pads and cuts what it writes into a column of another type, mostly without an
error. SQLite keeps a value of any type in any column, but its affinities make numbers of texts, and
doubles of whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_orchestrate.core.sinks.sql_types import (
    POSTGRES,
    SQLITE,
    SQLITE_DIGITS_MAX,
    type_without_digits_below_us,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_FRACTION_DIGITS = {"s": 0, "ms": 3, "us": 6}
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_RANK_DIGITS = (4, 9, 18)
"""How many digits each of the three whole numbers of SQL holds for sure."""
_DOUBLE_BITS, _REAL_BITS = 53, 24


def wider_type(present: Any, wanted: Any) -> Any | None:
    """Return the type that a column needs to hold the values of another type, if it is narrower.

    Only numbers are compared: whole numbers, floats and decimals. None means that nothing has to
    be changed.
    """
    import sqlalchemy as sa

    have, need = _integer_rank(present), _integer_rank(wanted)
    if have is not None and need is not None:
        return wanted if need > have else None
    if isinstance(present, sa.REAL) and isinstance(wanted, sa.Double):
        return sa.Double()
    if isinstance(present, sa.Float) or isinstance(wanted, sa.Float):
        return None
    if isinstance(present, sa.Numeric) and isinstance(wanted, sa.Numeric):
        if present.precision is None or wanted.precision is None:
            return None
        digits = present.precision - (present.scale or 0)
        scale = max(present.scale or 0, wanted.scale or 0)
        digits = max(digits, wanted.precision - (wanted.scale or 0))
        if (digits + scale, scale) != (present.precision, present.scale or 0):
            return sa.Numeric(digits + scale, scale)
    return None


def _integer_rank(kind: Any) -> int | None:
    import sqlalchemy as sa

    if not isinstance(kind, sa.Integer):
        return None
    return 2 if isinstance(kind, sa.BigInteger) else 0 if isinstance(kind, sa.SmallInteger) else 1


def without_domains(bind: Engine | Connection, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of columns with domains of PostgreSQL replaced by the types behind them.

    SQLAlchemy does not tell the length, the digits and the precision that a domain sets, so
    domains that set one stay.
    """
    import sqlalchemy as sa
    from sqlalchemy.dialects import postgresql

    names = {kind.name for kind in present.values() if isinstance(kind, postgresql.DOMAIN)}
    if not names:
        return dict(present)
    query = sa.text(
        "SELECT typname FROM pg_type WHERE typtype = 'd' AND typname = ANY(:names) "
        "GROUP BY typname HAVING max(typtypmod) = -1"
    )
    found = _all(bind, query, {"names": sorted(names)})
    return {
        name: kind.data_type if isinstance(kind, postgresql.DOMAIN) and kind.name in found else kind
        for name, kind in present.items()
    }


def _all(bind: Engine | Connection, query: Any, values: Mapping[str, Any]) -> set[str]:
    import sqlalchemy as sa

    if isinstance(bind, sa.Engine):
        with bind.connect() as connection:
            return set(connection.execute(query, values).scalars())
    return set(bind.execute(query, values).scalars())


def keeps_keys(present: Any, wanted: Any) -> bool:
    """Return whether a column of a key holds different keys as different values."""
    import sqlalchemy as sa
    from sqlalchemy.dialects import postgresql

    families: tuple[Any, ...] = (
        sa.Integer,
        sa.String,
        sa.Boolean,
        sa.Date,
        sa.Time,
        sa.DateTime,
        sa.LargeBinary,
        sa.Numeric,
    )
    family = next((one for one in families if isinstance(wanted, one)), None)
    if family is None or not isinstance(present, family):
        return False
    if isinstance(present, sa.CHAR | postgresql.CITEXT):
        return False
    if family is sa.DateTime and present.timezone != wanted.timezone:
        # SQLite has no zones: all its times are those of UTC.
        return type(present).__module__.endswith("sqlite.base")
    precision = getattr(present, "precision", None) if family in (sa.DateTime, sa.Time) else None
    return precision is None or precision >= 6


def keeps_values(present: Any, kind: pa.DataType, dialect: str) -> bool:
    """Return whether a column keeps all values of an Arrow type as they are.

    Args:
        present: The SQLAlchemy type of the column.
        kind: The Arrow type of the rows.
        dialect: The name of the database's dialect; in those that are not checked, every column
            is taken to keep them.
    """
    if dialect == SQLITE:
        return _sqlite_keeps(_affinity(present), kind)
    if dialect == POSTGRES:
        return _postgres_keeps(present, kind)
    return True


def _affinity(present: Any) -> str:
    """Return what SQLite makes of the values of a column, by the rules of its documentation."""
    import sqlalchemy as sa

    if isinstance(present, sa.Integer):
        return "INTEGER"
    if isinstance(present, sa.String):
        return "TEXT"
    if isinstance(present, sa.LargeBinary | sa.types.NullType):
        return "BLOB"
    return "REAL" if isinstance(present, sa.Float) else "NUMERIC"


def _sqlite_keeps(affinity: str, kind: pa.DataType) -> bool:
    is_ = pa.types
    if affinity == "BLOB":  # which changes nothing
        return True
    if is_.is_boolean(kind):
        return affinity in ("INTEGER", "NUMERIC")
    if is_.is_integer(kind):
        is_exact = affinity == "REAL" and kind.bit_width < _DOUBLE_BITS
        return affinity in ("INTEGER", "NUMERIC") or is_exact
    if is_.is_string(kind) or is_.is_large_string(kind):
        return affinity == "TEXT"
    if is_.is_floating(kind):
        return affinity != "TEXT"
    if is_.is_decimal(kind):
        # Values with more digits than a double has are refused one by one, unless it is a TEXT.
        return affinity != "TEXT" or kind.precision > SQLITE_DIGITS_MAX
    # Bytes, times and JSON are no texts that look like numbers.
    return True


def _postgres_keeps(present: Any, kind: pa.DataType) -> bool:
    import sqlalchemy as sa
    from sqlalchemy.dialects import postgresql

    is_ = pa.types
    if is_.is_boolean(kind):
        return isinstance(present, sa.Boolean)
    if is_.is_integer(kind):
        return _holds_integers(present, kind)
    if is_.is_floating(kind):
        is_narrow = isinstance(present, sa.REAL) and kind.bit_width > 32
        is_float = isinstance(present, sa.Float) and not is_narrow
        return is_float or _digits_of(present) == (None, None)
    if is_.is_decimal(kind):
        return _holds_decimals(present, kind)
    is_text = isinstance(present, sa.String) and not isinstance(present, sa.CHAR)
    # VARCHAR(n) cuts spaces at the end. An enumeration refuses all texts but its own.
    is_whole_text = is_text and (present.length is None or isinstance(present, sa.Enum))
    if is_.is_string(kind) or is_.is_large_string(kind):
        return is_whole_text
    if is_.is_nested(kind):
        return isinstance(present, sa.JSON | postgresql.JSONB) or is_whole_text
    if is_.is_date(kind):
        return isinstance(present, sa.Date)
    if is_.is_timestamp(kind):
        is_zoned = kind.tz is not None
        return (
            isinstance(present, sa.DateTime)
            and present.timezone == is_zoned
            and _holds_fractions(present, kind)
        )
    if is_.is_time(kind):
        return (
            isinstance(present, sa.Time)
            and not present.timezone
            and _holds_fractions(present, kind)
        )
    return isinstance(present, sa.LargeBinary)


def _holds_integers(present: Any, kind: pa.DataType) -> bool:
    import sqlalchemy as sa

    rank = _integer_rank(present)
    if rank is not None:
        return bool((16, 32, 64)[rank] >= kind.bit_width)
    if isinstance(present, sa.Float):
        bits = _REAL_BITS if isinstance(present, sa.REAL) else _DOUBLE_BITS
        return bool(kind.bit_width <= bits)
    return _holds_digits(present, _INTEGER_DIGITS[kind.bit_width], 0)


def _holds_decimals(present: Any, kind: pa.DataType) -> bool:
    rank = _integer_rank(present)
    if rank is not None:
        return bool(kind.scale == 0 and kind.precision <= _RANK_DIGITS[rank])
    return _holds_digits(present, kind.precision - kind.scale, kind.scale)


def _holds_digits(present: Any, whole: int, fraction: int) -> bool:
    """Return whether a NUMERIC has as many digits before and after the point."""
    found = _digits_of(present)
    if found is None:
        return False
    precision, scale = found
    return precision is None or (precision - scale >= whole and scale >= fraction)


def _digits_of(present: Any) -> Any:
    """Return the digits of a NUMERIC, and how many of them are after the point; None of others."""
    import sqlalchemy as sa

    if isinstance(present, sa.Float) or not isinstance(present, sa.Numeric):
        return None
    if present.precision is None:
        return None, None
    return present.precision, present.scale or 0


def _holds_fractions(present: Any, kind: pa.DataType) -> bool:
    """Return whether a column of times has the digits of the rows after the second."""
    found = getattr(present, "precision", None)
    unit: str = type_without_digits_below_us(kind).unit
    return found is None or bool(found >= _FRACTION_DIGITS[unit])
