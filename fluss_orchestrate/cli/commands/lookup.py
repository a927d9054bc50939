"""`fluss-orchestrate lookup`: rows of a key table by their key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluss_orchestrate.cli.connecting import key_values
from fluss_orchestrate.cli.options import ColumnsOption, TableArgument, names
from fluss_orchestrate.cli.parsing import path_of
from fluss_orchestrate.cli.presentation.failures import UsageError
from fluss_orchestrate.cli.presentation.output import datum, pairs, table
from fluss_orchestrate.cli.session import Session, with_session

if TYPE_CHECKING:
    from fluss_client import TableInfo


@with_session
def lookup(
    session: Session,
    name: TableArgument,
    key: Annotated[
        list[str],
        typer.Argument(metavar="KEY", help="Values in the key's order, or COLUMN=VALUE."),
    ],
    prefix: Annotated[
        bool,
        typer.Option("--prefix", help="All rows with these partition and bucket key values."),
    ] = False,
    columns: ColumnsOption = None,
) -> None:
    """Look a row up by its primary key, or all rows by a prefix of it.

    Examples:

      fluss-orchestrate lookup sales.orders 42 eu

      fluss-orchestrate lookup sales.order_lines order_id=42 --prefix
    """
    path = path_of(name)
    found = session.connection.get_table(path).result()
    info = found.get_table_info()
    if not info.has_primary_key():
        raise UsageError(f"{name} has no primary key: use `read`")
    shown = [info.schema.column(c).name for c in names(columns) or info.get_column_names()]
    if prefix:
        order = [*info.partition_keys, *info.bucket_keys]
        values = _values(info, order, key)
        lookuper = found.new_lookup().lookup_by(list(values)).create_lookuper()
        rows = [_only(row, shown) for row in lookuper.lookup(values).result()]
        listed = [list(row.values()) for row in rows]
        session.answer(rows, lambda: table(shown, listed, "no rows", datum))
        return
    values = _values(info, info.get_primary_keys(), key)
    row = found.new_lookup().create_lookuper().lookup(values).result()
    chosen = None if row is None else _only(row, shown)
    session.answer(chosen, lambda: "no row" if chosen is None else pairs(chosen, datum))


def _only(row: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in columns}


def _values(info: TableInfo, columns: Sequence[str], given: Sequence[str]) -> dict[str, Any]:
    """Return the values of the key in the types of its columns."""
    if all("=" in text for text in given):
        texts = key_values(given, "key")
    elif len(given) == len(columns):
        texts = dict(zip(columns, given, strict=True))
    else:
        raise UsageError(f"the key is ({', '.join(columns)}): give {len(columns)} values")
    if set(texts) != set(columns):
        raise UsageError(f"the key is ({', '.join(columns)}), not ({', '.join(texts)})")
    return {name: typed(info, name, texts[name]) for name in columns}


def typed(info: TableInfo, column: str, text: str) -> Any:
    """Return a text as a value of a column."""
    import pyarrow as pa

    wanted = info.schema.arrow.field(column).type
    try:
        return pa.scalar(text).cast(wanted).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        kind = info.schema.column(column).type
        raise UsageError(f"'{text}' is no {kind}, which column '{column}' has") from None
