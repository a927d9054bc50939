"""The target table of a SQL sink: created, extended, and checked for the form of the sink."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_orchestrate.core.sinks.base import SchemaPolicy, columns_to_add
from fluss_orchestrate.core.sinks.errors import SinkError, SinkFormError, SinkSchemaError
from fluss_orchestrate.core.sinks.sql_forms.column_types import (
    keeps_keys,
    keeps_values,
    wider_type,
    without_domains,
)
from fluss_orchestrate.core.sinks.sql_types import POSTGRES, SQLITE, sql_type
from fluss_orchestrate.core.sql_engine import execute_plainly, plain_text

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table

TRANSACTIONAL_DDL = (POSTGRES, SQLITE)
"""Dialects whose ALTER TABLE is rolled back with the transaction. Others commit with it."""
KEYED_DIALECTS = (POSTGRES, SQLITE, "duckdb", "mysql", "mariadb")
"""Dialects with an upsert that this project knows. Only the first two are tested."""


@dataclass(frozen=True)
class TargetTable:
    """One table of one database.

    Attributes:
        engine: The engine of the database.
        name: The name of the table.
        schema: The schema of the table.
        policy: What happens with columns that the table lacks.
        create: Whether a table that does not exist is created.
        held: The columns that rows of a mirror or a history have been written with.
    """

    engine: Engine
    name: str
    schema: str | None
    policy: SchemaPolicy
    create: bool
    held: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name with its schema."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def dialect(self) -> str:
        """The name of the database's dialect."""
        return self.engine.dialect.name

    def described(self, types: Mapping[str, Any], key: Sequence[str] = ()) -> Table:
        """Return the table with these columns.

        Args:
            types: The SQLAlchemy types by column.
            key: The columns of the primary key.
        """
        import sqlalchemy as sa

        quoted = sa.quoted_name
        constraint = [sa.PrimaryKeyConstraint(*(quoted(name, True) for name in key))] if key else []
        table: Table = sa.Table(
            quoted(self.name, True),
            sa.MetaData(),
            *(
                # Not autoincrement: PostgreSQL would make a SERIAL of a whole number.
                sa.Column(quoted(name, True), kind, nullable=name not in key, autoincrement=False)
                for name, kind in types.items()
            ),
            *constraint,
            schema=None if self.schema is None else quoted(self.schema, True),
        )
        return table

    def ensure(self, declared: Table) -> None:
        """Create the table if it does not exist.

        Raises:
            SinkError: It does not exist, and the sink may not create it.
        """
        import sqlalchemy as sa

        if sa.inspect(self.engine).has_table(self.name, schema=self.schema):
            return
        if not self.create:
            raise SinkError(
                self.label,
                "there is no such table. If a mirror was there, `reset` its checkpoint to start",
            )
        create_quietly(self.engine, declared)

    def present(self, bind: Engine | Connection) -> dict[str, Any]:
        """Return the types of the columns that the table has, by name."""
        import sqlalchemy as sa

        inspector = sa.inspect(bind)
        columns = inspector.get_columns(self.name, schema=self.schema)
        return without_domains(bind, {column["name"]: column["type"] for column in columns})

    def extend(self, columns: pa.Schema) -> dict[str, Any]:
        """Add missing columns, each in a transaction of its own; return the types before.

        Raises:
            SinkSchemaError: Columns are missing, or would change values; nothing was changed.
        """
        present = self.present(self.engine)
        declared = self.described({f.name: sql_type(f.type, self.dialect) for f in columns})
        missing = columns_to_add(self.label, present, columns, self.policy)
        self._check_types(present, declared, columns)
        for field in missing:
            self._add_column_quietly(declared, field.name)
        return present

    def fit(self, connection: Connection, declared: Table, columns: pa.Schema) -> dict[str, Any]:
        """Add missing columns and widen narrow ones within a transaction.

        Args:
            connection: The connection, in the transaction.
            declared: The table as the sink would create it.
            columns: The columns of the rows.

        Returns:
            The types that the table has then, by name.

        Raises:
            SinkSchemaError: Columns are missing or too narrow, and the policy or the database does
                not allow to change that; or their types would change values.
        """
        present = self.present(connection)
        missing = columns_to_add(self.label, present, columns, self.policy, self.held)
        narrow = {
            name: wider
            for name in columns.names
            if name in present
            and (wider := wider_type(present[name], declared.c[name].type)) is not None
        }
        self._check_types(present, declared, columns, narrow)
        if narrow and self.dialect != SQLITE:  # whose types have no widths
            self._widen(connection, declared, narrow)
        for field in missing:
            execute_plainly(connection, self._adding(declared, field.name))
        return self.present(connection) if narrow or missing else present

    def _check_types(
        self,
        present: Mapping[str, Any],
        declared: Table,
        columns: pa.Schema,
        widened: Collection[str] = (),
    ) -> None:
        """Refuse columns that would change values; `widened` are those that become wider."""
        dialect = self.engine.dialect
        wrong = [
            field.name
            for field in columns
            if field.name in present
            and field.name not in widened
            and not keeps_values(present[field.name], field.type, dialect.name)
        ]
        if not wrong:
            return
        shown = ", ".join(
            f"'{name}' is {present[name].compile(dialect=dialect)} and must be "
            f"{declared.c[name].type.compile(dialect=dialect)}"
            for name in wrong
        )
        raise SinkSchemaError(
            self.label,
            f"columns of the table would change values of the rows: {shown}. Nothing was written. "
            "Change these types there, let the sink create a table under another name, or read "
            "without these columns (columns=)",
            wrong,
        )

    def _widen(self, connection: Connection, declared: Table, narrow: Mapping[str, Any]) -> None:
        preparer = self.engine.dialect.identifier_preparer
        where = preparer.format_table(declared)
        changes = {
            name: f"ALTER TABLE {where} ALTER COLUMN {preparer.quote_identifier(name)} TYPE "
            f"{kind.compile(dialect=self.engine.dialect)}"
            for name, kind in narrow.items()
        }
        if self.policy is not SchemaPolicy.ADD_COLUMNS or self.dialect != POSTGRES:
            raise SinkSchemaError(
                self.label,
                f"column {', '.join(narrow)} is too narrow for the values of the table. Run: "
                f"{plain_text(self.engine.dialect, '; '.join(changes.values()))}"
                + ("; or open the sink with schema_policy='add_columns', which does it")
                * (self.dialect == POSTGRES),
                list(narrow),
            )
        for change in changes.values():
            execute_plainly(connection, change)

    def _adding(self, declared: Table, name: str) -> str:
        import sqlalchemy as sa

        dialect = self.engine.dialect
        column = sa.schema.CreateColumn(declared.c[name]).compile(dialect=dialect)
        return (
            f"ALTER TABLE {dialect.identifier_preparer.format_table(declared)} ADD COLUMN {column}"
        )

    def _add_column_quietly(self, declared: Table, name: str) -> None:
        import sqlalchemy as sa

        try:
            with self.engine.begin() as connection:
                execute_plainly(connection, self._adding(declared, name))
        except (sa.exc.ProgrammingError, sa.exc.OperationalError):
            # Another process may have added it in the meantime.
            if name not in self.present(self.engine):
                raise

    def check_key(self, connection: Connection, key: Sequence[str], declared: Table) -> None:
        """Check that the table keeps one row per key, for keys that differ as they do in Fluss.

        Raises:
            SinkFormError: SQLite has the table under this name in other case, and tells no keys.
            SinkSchemaError: The table has no primary key and no unique constraint on exactly these
                columns, or one of them has a type or a collation that merges different keys.
        """
        import sqlalchemy as sa

        shown = ", ".join(key)
        try:
            found = _unique_columns(sa.inspect(connection), self.name, self.schema)
        except sa.exc.NoSuchTableError:
            raise SinkFormError(
                self.label,
                "there is no table of exactly this name: open the sink with the name that the "
                "table was created with, letter by letter",
            ) from None
        if set(key) not in found:
            raise SinkSchemaError(
                self.label,
                f"it has neither a primary key nor a unique constraint on exactly {shown}, the "
                "primary key of the Fluss table: add one, or let the sink create a table under "
                "another name",
                key,
            )
        present = self.present(connection)
        wrong = [name for name in key if not keeps_keys(present[name], declared.c[name].type)]
        wrong += [name for name in self._merging(connection, key) if name not in wrong]
        if wrong:
            raise SinkSchemaError(
                self.label,
                f"column {', '.join(wrong)} of its key takes different keys for the same one, or "
                "cannot hold all of them (its type or collation): let the sink create a table "
                "under another name, and copy its types",
                wrong,
            )

    def _merging(self, connection: Connection, key: Sequence[str]) -> Iterable[str]:
        """Return the columns of the key whose collation takes different texts as equal."""
        import sqlalchemy as sa

        if self.dialect == SQLITE:
            query = sa.text(
                "SELECT x.name FROM pragma_index_list(:t) l, pragma_index_xinfo(l.name) x "
                "WHERE l.\"unique\" AND x.key AND x.coll <> 'BINARY'"
            )
        elif self.dialect == POSTGRES:
            query = sa.text(
                "SELECT a.attname FROM pg_attribute a JOIN pg_collation c ON c.oid = "
                "a.attcollation JOIN pg_class r ON r.oid = a.attrelid JOIN pg_namespace n ON "
                "n.oid = r.relnamespace WHERE r.relname = :t AND n.nspname = "
                "coalesce(:s, current_schema()) AND NOT c.collisdeterministic"
            ).bindparams(sa.bindparam("s", self.schema, sa.Text))
        else:
            return []
        found = set(connection.execute(query, {"t": self.name}).scalars())
        return [name for name in key if name in found]


def create_quietly(engine: Engine, table: Table) -> None:
    """Create a table that does not exist; another process may do the same at the same time."""
    import sqlalchemy as sa

    try:
        table.create(engine, checkfirst=True)
    except (sa.exc.ProgrammingError, sa.exc.OperationalError, sa.exc.IntegrityError):
        # Another process may have created the table in the meantime. If not, this query fails.
        with engine.connect() as connection:
            connection.execute(sa.select(sa.func.count()).select_from(table))


def _unique_columns(inspector: Any, name: str, schema: str | None) -> list[set[str]]:
    """Return the sets of columns that are unique together, for all rows."""
    found = [set(inspector.get_pk_constraint(name, schema=schema)["constrained_columns"])]
    found += [set(c["column_names"]) for c in inspector.get_unique_constraints(name, schema=schema)]
    for index in inspector.get_indexes(name, schema=schema):
        options = index.get("dialect_options") or {}
        is_partial = any(option.endswith("_where") and options[option] for option in options)
        if index["unique"] and not is_partial and None not in index["column_names"]:
            found.append(set(index["column_names"]))
    return found
