"""One table of a database under all of its names, and the checkpoints that write into it.

A table can be named with its schema or without one, and on SQLite in any case. Its positions stand
in the table of positions of the schema that the sink was opened with. So whoever begins to write
looks through all tables of positions that it can read, for every name of its table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluss_orchestrate.core.sinks.sql_types import POSTGRES, SQLITE

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

_SCHEMA_OF = (
    "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.oid = to_regclass(:name)"
)
_POSITIONS_IN = (
    "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = :name AND c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\\_temp%' "
    "AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') "
    "ORDER BY n.nspname"
)


@dataclass(frozen=True, slots=True)
class Writer:
    """A checkpoint that writes into a table.

    Attributes:
        name: The checkpoint.
        sink: The name of the table that its sink was opened with.
        position: Its position, as text.
    """

    name: str
    sink: str
    position: str


def one_name(connection: Connection, table: Table) -> str:
    """Return the name that stands for a table however it is called; the table exists."""
    dialect = connection.dialect
    name = str(table.name)
    if dialect.name == SQLITE:
        return _folded(name)
    schema = _schema_of(connection, table)
    return f"{schema}.{name}" if schema else name


def other_writers(
    connection: Connection, positions: Table, table: Table, sink: str, name: str
) -> Iterator[Writer]:
    """Return the other checkpoints that have written into a table, under all of its names.

    Args:
        connection: The connection, in a transaction.
        positions: The table of positions of the sink.
        table: The table that the sink writes to.
        sink: The name of that table in the table of positions.
        name: The checkpoint that is not meant: that of the sink.
    """
    mine = one_name(connection, table)
    own = _schema_of(connection, positions)
    for schema, one in _all_positions(connection, positions):
        for row in connection.execute(one.select()):
            stored = json.loads(row.position).get("target")
            is_same = stored == mine if stored else _may_be(connection, row.sink, mine, schema)
            if is_same and (schema, row.sink, row.name) != (own, sink, name):
                yield Writer(row.name, row.sink, row.position)


def _may_be(connection: Connection, sink: str, mine: str, schema: str) -> bool:
    """Return whether the name that an earlier version stored is one of the table."""
    if connection.dialect.name == SQLITE:
        return _folded(sink).rpartition(".")[2] == mine.rpartition(".")[2]
    return mine in (sink, f"{schema}.{sink}")


def _all_positions(connection: Connection, positions: Table) -> Iterator[tuple[str, Table]]:
    import sqlalchemy as sa

    if connection.dialect.name != POSTGRES:
        yield _schema_of(connection, positions), positions
        return
    found = connection.execute(sa.text(_POSITIONS_IN), {"name": positions.name}).scalars().all()
    for schema in found:
        yield schema, positions.to_metadata(sa.MetaData(), schema=sa.quoted_name(schema, True))


def _schema_of(connection: Connection, table: Table) -> str:
    import sqlalchemy as sa

    if connection.dialect.name != POSTGRES:
        return str(table.schema or "")
    shown = connection.dialect.identifier_preparer.format_table(table)
    return str(connection.execute(sa.text(_SCHEMA_OF), {"name": shown}).scalar() or "")


def _folded(name: str) -> str:
    """Return a name as SQLite compares names: the letters of ASCII are alike in both cases."""
    return name.encode().lower().decode()
