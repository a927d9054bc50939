"""A mirror in a SQL table: the current row of each key, changed by one transaction per plan.

The last change of each key is copied into temporary tables. Set-based statements then upsert and
delete the rows of the target. The first rows of a generation go straight into the empty table.
Readers see the rows before the plan until the transaction is committed, then those after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_orchestrate.core.last_images import LastImages
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.row_schema import partition_key_of, primary_key_of
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkResult
from fluss_orchestrate.core.sinks.errors import SinkFormError, SinkSchemaError
from fluss_orchestrate.core.sinks.partition_values import partition_rows
from fluss_orchestrate.core.sinks.position import SinkPosition, dropped_names
from fluss_orchestrate.core.sinks.sql_forms.copying import (
    BulkInsert,
    add_all,
    explained_values,
)
from fluss_orchestrate.core.sinks.sql_forms.tables import (
    KEYED_DIALECTS,
    TRANSACTIONAL_DDL,
    TargetTable,
)
from fluss_orchestrate.core.sinks.sql_types import (
    POSTGRES,
    SqlValues,
    sql_type,
    type_without_digits_below_us,
)
from fluss_orchestrate.core.sql_engine import execute_plainly

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

CHANGE_TYPE = "_change_type"
MERGE_VERSION = (15,)
"""The first version of PostgreSQL that has MERGE."""
STAGED_UPSERTS, STAGED_DELETES = "fluss_staged_upserts", "fluss_staged_deletes"


@dataclass(frozen=True)
class KeyedTable:
    """A table that keeps rows by the key of a Fluss table.

    Attributes:
        target: The table of the database.
        columns: The columns of the rows that it keeps.
        key: The columns of its primary key.
        replace_nul: What replaces U+0000 outside of the key; None refuses the value.
    """

    target: TargetTable
    columns: pa.Schema
    key: tuple[str, ...]
    replace_nul: str | None

    def prepare(self) -> None:
        """Create the table, and change it where that cannot be part of a transaction.

        Raises:
            SinkFormError: The dialect has no upsert that this project knows.
            SinkSchemaError: A column cannot be part of a key of this database.
        """
        if self.target.dialect not in KEYED_DIALECTS:
            raise SinkFormError(
                self.target.label,
                f"mirrors are written in the dialects {', '.join(KEYED_DIALECTS)}, and not in "
                f"{self.target.dialect}",
            )
        inexact = [name for name in self.key if not _is_exact(self.columns.field(name).type)]
        if inexact:
            raise SinkSchemaError(
                self.target.label,
                f"column {', '.join(inexact)} of the primary key has a type whose values are not "
                "all different in SQL (floats: -0.0 and 0.0; times with nanoseconds): a mirror "
                "would take two keys for one. Use another kind of sink",
                inexact,
            )
        self.target.ensure(self.declared)
        if self.target.dialect not in TRANSACTIONAL_DDL:
            with self.target.engine.begin() as connection:
                self.target.fit(connection, self.declared, self.columns)

    @property
    def declared(self) -> Table:
        """The table as the sink creates it."""
        kinds = {f.name: sql_type(f.type, self.target.dialect) for f in self.columns}
        return self.target.described(kinds, self.key)

    def fitted(self, connection: Connection) -> Fitted:
        """Add and widen columns within the transaction, and return the table to write to."""
        present = self.target.fit(connection, self.declared, self.columns)
        self.target.check_key(connection, self.key, self.declared)
        values = SqlValues(self.columns, self.target.dialect, present, self.replace_nul, self.key)
        return Fitted(connection, self, values)


def _is_exact(kind: pa.DataType) -> bool:
    return not pa.types.is_floating(kind) and type_without_digits_below_us(kind) == kind


class Fitted:
    """A keyed table within one transaction."""

    def __init__(self, connection: Connection, keyed: KeyedTable, values: SqlValues) -> None:
        self.connection = connection
        self.keyed = keyed
        self.values = values
        self.table = keyed.target.described(values.bound_types(), keyed.key)

    def refuse_rows_of_others(self, at: SinkPosition | None, owner: str) -> None:
        """Refuse a table with rows before the first plan, and keep others out until its end.

        Args:
            at: Where the mirror or the history is; None if it begins here.
            owner: The mirror or the history, for the error.

        Raises:
            SinkFormError: The table has rows, which are not of this mirror or history.
        """
        import sqlalchemy as sa

        if at is not None:
            return
        if self.keyed.target.dialect == POSTGRES:
            preparer = self.connection.dialect.identifier_preparer
            where = preparer.format_table(self.table)
            execute_plainly(self.connection, f"LOCK TABLE {where} IN SHARE ROW EXCLUSIVE MODE")
        query = sa.select(sa.literal(1)).select_from(self.table).limit(1)
        if self.connection.execute(query).first() is not None:
            raise SinkFormError(
                self.keyed.target.label,
                f"the table has rows that are not of the {owner}, which begins with an empty "
                "table. Empty it, or name another table",
            )

    def inserting(
        self, table: Table | None = None, names: Sequence[str] | None = None
    ) -> BulkInsert:
        """Return what adds rows to the table, or to a staging table with some of its columns."""
        keyed, columns, values = self.keyed, self.keyed.columns, self.values
        if names is not None:
            columns = pa.schema([columns.field(name) for name in names])
            values = values.of(names)
        return BulkInsert(
            self.connection,
            self.table if table is None else table,
            columns,
            values,
            keyed.replace_nul,
            keyed.key,
        )

    @contextmanager
    def staging(self, name: str, names: Sequence[str]) -> Iterator[Table]:
        """Make an empty temporary table with some columns of the table, for this transaction."""
        import sqlalchemy as sa

        dialect = self.connection.dialect
        quoted = dialect.identifier_preparer.quote_identifier
        columns = ", ".join(quoted(one) for one in names)
        source = dialect.identifier_preparer.format_table(self.table)
        ends = " ON COMMIT DROP" if dialect.name == POSTGRES else ""
        execute_plainly(
            self.connection,
            f"CREATE TEMPORARY TABLE {name}{ends} AS SELECT {columns} FROM {source} WHERE 1 = 0",
        )
        kinds = self.values.bound_types()
        yield sa.Table(
            name,
            sa.MetaData(),
            *(sa.Column(sa.quoted_name(one, True), kinds[one]) for one in names),
        )
        # Not after an error: the rollback removes it.
        execute_plainly(self.connection, f"DROP TABLE {name}")

    def upsert_from(self, staged: Table) -> None:
        """Insert the rows of a staging table, or replace those with their keys.

        The rows are taken in the order of the key: neighbours in the index of the target are
        changed one after the other, which costs much less than changing them at random.
        """
        import sqlalchemy as sa

        key, dialect = self.keyed.key, self.keyed.target.dialect
        server: Any = self.connection.dialect.server_version_info or ()
        if dialect == POSTGRES and server >= MERGE_VERSION:
            self._merge(staged)
            return
        names = [column.name for column in staged.c]
        # SQLite needs a WHERE before ON CONFLICT, to tell it from the ON of a join.
        rows = sa.select(*staged.c).where(sa.true()).order_by(*(staged.c[name] for name in key))
        if dialect in ("mysql", "mariadb"):
            from sqlalchemy.dialects import mysql

            into = mysql.insert(self.table).from_select(names, rows)
            same = {name: into.inserted[name] for name in names}
            self.connection.execute(into.on_duplicate_key_update(same))
            return
        from sqlalchemy.dialects import postgresql, sqlite

        make: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
        inserted = make(self.table).from_select(names, rows)
        others = {name: inserted.excluded[name] for name in names if name not in key}
        if others:
            inserted = inserted.on_conflict_do_update(index_elements=list(key), set_=others)
        else:
            inserted = inserted.on_conflict_do_nothing(index_elements=list(key))
        self.connection.execute(inserted)

    def _merge(self, staged: Table) -> None:
        """Do the same by MERGE, which takes a third less of the server's time than ON CONFLICT."""
        preparer = self.connection.dialect.identifier_preparer
        quoted = {column.name: preparer.quote_identifier(column.name) for column in staged.c}
        key = [quoted[name] for name in self.keyed.key]
        others = [text for name, text in quoted.items() if name not in self.keyed.key]
        same = " AND ".join(f"t.{name} = s.{name}" for name in key)
        changed = ", ".join(f"{name} = s.{name}" for name in others)
        update = f"WHEN MATCHED THEN UPDATE SET {changed} " if changed else ""
        execute_plainly(
            self.connection,
            f"MERGE INTO {preparer.format_table(self.table)} t "
            f"USING (SELECT * FROM {staged.name} ORDER BY {', '.join(key)}) s ON {same} {update}"
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(quoted.values())}) "
            f"VALUES ({', '.join(f's.{name}' for name in quoted.values())})",
        )

    def delete_in(self, staged: Table) -> int:
        """Delete the rows whose keys are in a staging table; return how many there were."""
        import sqlalchemy as sa

        mine = [self.table.c[name] for name in self.keyed.key]
        keys = sa.select(*(staged.c[name] for name in self.keyed.key))
        wanted = mine[0].in_(keys) if len(mine) == 1 else sa.tuple_(*mine).in_(keys)
        return self.connection.execute(self.table.delete().where(wanted)).rowcount

    def delete_partitions(self, names: Sequence[str], partition_key: Sequence[str]) -> int:
        """Delete the rows of partitions by their names; return how many there were."""
        import sqlalchemy as sa

        columns = [self.keyed.columns.field(key) for key in partition_key]
        rows = partition_rows(self.keyed.target.label, names, columns)
        deleted = 0
        for values in self.values.of(partition_key).rows(rows):
            same = sa.and_(*(self.table.c[key] == values[key] for key in partition_key))
            deleted += self.connection.execute(self.table.delete().where(same)).rowcount
        return deleted


class MirrorPlan:
    """One plan on its way into a mirror. The changes are read before the transaction begins.

    Args:
        target: The table of the database.
        plan: The plan.
        read: Returns the rows of the plan.
        replace_nul: What replaces U+0000 outside of the key; None refuses the value.
    """

    def __init__(
        self, target: TargetTable, plan: ScanPlan, read: ReadPlan, replace_nul: str | None
    ) -> None:
        self._plan = plan
        self._reader = read(plan)
        schema = self._reader.schema
        self._key = primary_key_of(schema)
        self._partition_key = partition_key_of(schema)
        columns = pa.schema([f for f in schema if f.name not in plan.metadata_columns])
        self._keyed = KeyedTable(target, columns, self._key, replace_nul)
        if not self._key:
            raise SinkFormError(
                target.label, "the rows have no primary key; a mirror needs those of a key table"
            )

    @contextmanager
    def opened(self) -> Iterator[MirrorPlan]:
        """Prepare the table and read the changes; the block holds them."""
        self._keyed.prepare()
        if self._plan.kind == "state":
            yield self
            return
        with LastImages(self._key) as images:
            for batch in self._reader:
                images.add(batch)
            self._images = images
            yield self

    def apply(self, connection: Connection, at: SinkPosition | None) -> SinkResult:
        """Bring the mirror to the end of the plan.

        Args:
            connection: The connection, in the transaction that has claimed the position.
            at: Where the mirror was before; None if it was nowhere.

        Raises:
            SinkFormError: The table has rows that are not of this mirror.
        """
        plan, label = self._plan, self._keyed.target.label
        fitted = self._keyed.fitted(connection)
        fitted.refuse_rows_of_others(at, f"mirror '{plan.name}'")
        removed = 0
        begins = at is None or at.generation != plan.generation
        with explained_values(label, plan):
            if at is not None and begins:
                removed = connection.execute(fitted.table.delete()).rowcount
            names = dropped_names(plan, at)
            removed += fitted.delete_partitions(names, self._partition_key) if names else 0
            if plan.kind == "state":
                rows, size, upserted, deleted = self._copied(fitted)
            elif begins:
                rows, size, upserted, deleted = self._filled(fitted)
            else:
                rows, size, upserted, deleted = self._merged(fitted)
        details = {"table": label, "upserted": upserted, "deleted": deleted + removed}
        return SinkResult(rows, size, details)

    def _copied(self, fitted: Fitted) -> tuple[int, int, int, int]:
        """Add the rows of a state, of which each key has one."""
        rows = size = 0

        def state() -> Iterator[tuple[BulkInsert, pa.RecordBatch]]:
            nonlocal rows, size
            into = fitted.inserting()
            for batch in self._reader:
                mine = batch.select(self._keyed.columns.names)
                rows, size = rows + mine.num_rows, size + mine.nbytes
                yield into, mine

        add_all(state())
        return rows, size, rows, 0

    def _filled(self, fitted: Fitted) -> tuple[int, int, int, int]:
        """Add the rows that are left after all changes to the empty table."""
        upserted = size = 0

        def left() -> Iterator[tuple[BulkInsert, pa.RecordBatch]]:
            nonlocal upserted, size
            into = fitted.inserting()
            for images in self._images.images():
                mine = images.upserts.select(self._keyed.columns.names)
                upserted, size = upserted + mine.num_rows, size + mine.nbytes
                yield into, mine

        add_all(left())
        return self._images.changes, size, upserted, 0

    def _merged(self, fitted: Fitted) -> tuple[int, int, int, int]:
        """Upsert and delete by the last changes."""
        upserted = gone = deleted = size = 0
        names, key = self._keyed.columns.names, self._key
        with (
            fitted.staging(STAGED_UPSERTS, names) as upserts,
            fitted.staging(STAGED_DELETES, key) as deletes,
        ):

            def last() -> Iterator[tuple[BulkInsert, pa.RecordBatch]]:
                nonlocal upserted, gone, size
                into, out = fitted.inserting(upserts), fitted.inserting(deletes, key)
                for images in self._images.images():
                    mine = images.upserts.select(names)
                    upserted, size = upserted + mine.num_rows, size + mine.nbytes
                    yield into, mine
                    keys = images.deletes.select(list(key))
                    gone += keys.num_rows
                    yield out, keys

            add_all(last())
            if gone:
                deleted = fitted.delete_in(deletes)
            if upserted:
                fitted.upsert_from(upserts)
        return self._images.changes, size, upserted, deleted
