"""A table of a SQL database as a sink: the rows of a plan and its id are one transaction.

The table `fluss_sink_positions` in the same schema has one row per target table and checkpoint: the
last plan and where it ended. A transaction writes this row first, so a second process with the same
plan waits for the first one, and then finds the plan there. Identifiers are always quoted, so names
keep their case. Errors contain neither rows nor the database's password (`core/sql_engine.py`).

This module has the sink and its position. `sql_forms` has what each form does with the rows.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa

from fluss_client.errors import ClientError, ConfigError
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import (
    MirrorRows,
    ReadPlan,
    SchemaPolicy,
    SinkForm,
    SinkResult,
    form_of,
)
from fluss_orchestrate.core.sinks.errors import (
    SinkContendedError,
    SinkError,
    SinkFormError,
)
from fluss_orchestrate.core.sinks.position import (
    PlanState,
    SinkPosition,
    check_beginning,
    plan_state,
    position_after,
)
from fluss_orchestrate.core.sinks.registry import (
    SCHEMA_POLICY,
    FieldKind,
    LineageNode,
    SinkDeclaration,
    SinkField,
    Values,
    address_node,
    form_field,
    register,
)
from fluss_orchestrate.core.sinks.sql_forms.append import AppendPlan
from fluss_orchestrate.core.sinks.sql_forms.history import HistoryPlan
from fluss_orchestrate.core.sinks.sql_forms.mirror import MirrorPlan
from fluss_orchestrate.core.sinks.sql_forms.names import one_name, other_writers
from fluss_orchestrate.core.sinks.sql_forms.reading import read_rows, snapshot, stored_schema
from fluss_orchestrate.core.sinks.sql_forms.tables import TargetTable, create_quietly
from fluss_orchestrate.core.sinks.sql_types import SQLITE
from fluss_orchestrate.core.sql_engine import (
    LOCK_TIMEOUT_S,
    EngineSource,
    execute_plainly,
    hides_sql,
    is_contended,
    reason,
    sqlalchemy_missing,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table
    from sqlalchemy.exc import SQLAlchemyError

    from fluss_client import FlussConnection

POSITIONS_TABLE = "fluss_sink_positions"
NAME_LENGTH = 512
"""The longest name of a checkpoint with its prefix. With more, MySQL refuses the primary key."""
OLD_NAME_LENGTH = 255
"""The width of the column `name` in tables of positions that earlier versions created."""
ATTEMPTS_MAX = 10


class _PositionTakenError(Exception):
    """Another process wrote the first position of this checkpoint: roll the transaction back."""


class _PlanRows(Protocol):
    """One plan on its way into the table, in one of the forms."""

    def opened(self) -> AbstractContextManager[Self]:
        """Do what can be done before the transaction; the block holds it."""

    def apply(self, connection: Connection, at: SinkPosition | None) -> SinkResult:
        """Write the plan in the transaction that has claimed the position."""


class SqlSink:
    """Writes plans into one SQL table.

    A table that does not exist is created with the columns of the first plan. Nested values are
    stored in JSON columns. A plan is one transaction: limit its size with `max_offsets`. A value
    that the database cannot store is refused with `SinkValueError`.

    With `form="mirror"` the table holds the current row of each primary key of a key table: the
    last change of each key is upserted or deleted. It is created with that primary key; a table
    that exists must have it, or a unique constraint on the same columns, and no rows. A reset of
    the checkpoint to `start` replaces all rows in one transaction. With
    `schema_policy="add_columns"`, columns are also widened (PostgreSQL), in the same transaction.

    With `form="history"` it holds every version of each key, with the time in which it was current
    (`sql_forms/history.py` has its columns). Mirrors are tested with PostgreSQL and SQLite; the
    upserts of MySQL, MariaDB and DuckDB are there and not tested. Histories need PostgreSQL or
    SQLite.

    Args:
        engine: An SQLAlchemy engine, or its URL.
        table: The name of the table.
        schema: The schema of the table.
        schema_policy: What happens with columns that the table lacks.
        create: Whether a table that does not exist is created.
        replace_nul: The text that replaces the character U+0000 where the database cannot store it
            (PostgreSQL), except in the key of a mirror. None refuses such rows.
        form: What the sink makes of the rows: `append`, `changes`, `mirror` or `history`.

    Raises:
        ConfigError: The URL is not one of SQLAlchemy, or its driver is not installed.
        MissingExtraError: SQLAlchemy 2 is not installed.
    """

    exactly_once = True

    def __init__(
        self,
        engine: Engine | str,
        table: str,
        *,
        schema: str | None = None,
        schema_policy: SchemaPolicy | str = SchemaPolicy.ERROR,
        create: bool = True,
        replace_nul: str | None = None,
        form: SinkForm | str = SinkForm.APPEND,
    ) -> None:
        source: Engine | EngineSource | ClientError
        if isinstance(engine, str):
            source = EngineSource.of(engine, "a SQL sink")
        else:
            source = sqlalchemy_missing() or engine
        engine = ""  # A traceback may show the variables of this frame, and the URL has a password.
        if isinstance(source, ClientError):
            raise source
        import sqlalchemy

        self._sa = sqlalchemy
        self._engine: Engine = _opened(source) if isinstance(source, EngineSource) else source
        if replace_nul is not None and "\x00" in replace_nul:
            raise ConfigError("replace_nul cannot hold U+0000 itself")
        self._replace_nul = replace_nul
        self._form = form_of(form, tuple(SinkForm))
        policy = SchemaPolicy(schema_policy)
        self._table = TargetTable(self._engine, table, schema, policy, create)
        self._key = self._table.label
        self._schema = schema
        self._positions = self._positions_table()
        self._ready = False
        self._known_name: str | None = None
        self._lock = threading.Lock()

    @property
    def form(self) -> SinkForm:
        """What the sink makes of the rows."""
        return self._form

    @property
    def identity(self) -> str:
        """The kind and the name of the database, and the table; without host and user."""
        url = self._engine.url
        database = url.database or ""
        if url.get_backend_name() == "sqlite" and database not in ("", ":memory:"):
            database = os.path.abspath(database)
        return f"sql:{url.get_backend_name()}:{database}:{self._key}"

    @hides_sql
    def position(self, name: str) -> TablePosition | None:
        """Return the position of the checkpoint called `name` in the table.

        Returns:
            The position, or None if the table holds no plan of the checkpoint.
        """
        self._prepare(name)
        with self._engine.connect() as connection:
            at = self._state(connection, name)[1]
        return None if at is None else at.offsets

    @hides_sql
    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """Return what the table holds of a `plan`; None if it does not hold the plan.

        Raises:
            SinkPositionError: The plan does not begin where the table's position is.
        """
        if plan.is_empty and not self._form.follows_state:
            return SinkResult(0)
        self._prepare(plan.name)
        with self._engine.connect() as connection:
            return self._done(plan, *self._state(connection, plan.name))

    @hides_sql
    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Write all rows and move the position, in one transaction.

        Args:
            plan: The plan.
            read: Returns a reader of the rows of a part of the plan.

        Raises:
            SinkFormError: The table, or the checkpoint in it, is one of another form.
            SinkSchemaError: The columns of the rows do not fit the table.
            SinkValueError: A value cannot be stored; nothing of the plan was written.
            SinkPositionError: The plan does not begin where the table's position is.
            SinkContendedError: Other transactions were always faster; the plan can be retried.
            SinkError: The database refused the rows or does not answer.
        """
        done = self.already_done(plan)
        for _ in range(ATTEMPTS_MAX):
            if done is not None:
                return done
            with self._rows_of(plan, read).opened() as rows:
                try:
                    with self._engine.begin() as connection:
                        done = self._write(connection, plan, rows)
                except _PositionTakenError:
                    pass  # Another process wrote the first position: read it again.
            if done is None:
                done = self.already_done(plan)
        if done is not None:
            return done
        raise SinkContendedError(self._key, f"plan {plan.plan_id} lost {ATTEMPTS_MAX} races")

    @hides_sql
    def reset_position(self, name: str, position: TablePosition | None = None) -> None:
        """Set or remove the position of a checkpoint, after the rows were corrected by hand.

        Args:
            name: The name of the checkpoint.
            position: The new position; None removes it.
        """
        self._prepare(name)
        mine = self._mine(name)
        with self._engine.begin() as connection:
            connection.execute(self._positions.delete().where(mine))
            if position is not None:
                row = self._row(name, "", SinkPosition(position), 0)
                connection.execute(self._positions.insert().values(**row))

    @contextmanager
    def read_mirror(self, name: str, schema: pa.Schema) -> Iterator[MirrorRows | None]:
        """Read the rows of a mirror; the block holds the snapshot.

        Args:
            name: The checkpoint.
            schema: The columns of the table that the mirror has, with the types of the table.

        Returns:
            The rows in the order of `schema`, as they are read from the database; None if the
            table holds no plan of the checkpoint.

        Raises:
            SinkError: The database failed, or lacks a column.
        """
        import sqlalchemy as sa

        self._prepare(name)
        failure: SinkError
        try:
            with snapshot(self._engine) as connection:
                at = self._state(connection, name)[1]
                if at is None:
                    yield None
                    return
                batches = self._explaining(read_rows(connection, self._table, schema))
                reader = pa.RecordBatchReader.from_batches(stored_schema(schema), batches)
                yield MirrorRows(at.offsets, reader)
            return
        except sa.exc.SQLAlchemyError as error:
            failure = self._explained(error)
        raise failure

    def _explaining(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sqlalchemy as sa

        try:
            yield from batches
            return
        except sa.exc.SQLAlchemyError as error:
            failure = self._explained(error)
        raise failure

    def _rows_of(self, plan: ScanPlan, read: ReadPlan) -> _PlanRows:
        if self._form is SinkForm.MIRROR:
            return MirrorPlan(self._table_for(plan), plan, read, self._replace_nul)
        if self._form is SinkForm.HISTORY:
            return HistoryPlan(self._table_for(plan), plan, read, self._replace_nul)
        return AppendPlan(self._table, plan, read, self._replace_nul)

    def _table_for(self, plan: ScanPlan) -> TargetTable:
        """Return the table for a plan: only one that begins with all rows may create it."""
        with self._engine.connect() as connection:
            at = self._state(connection, plan.name)[1]
        if check_beginning(self._key, plan, at):
            return self._table
        return replace(self._table, create=False, held=() if at is None else at.columns)

    def _write(self, connection: Connection, plan: ScanPlan, rows: _PlanRows) -> SinkResult | None:
        """Write the plan; return None if another process moved the position in the meantime."""
        last, at, _ = self._state(connection, plan.name)
        done = self._done(plan, last, at, 0)
        if done is not None:
            return done
        after = position_after(plan, at, keeps_columns=self._form.follows_state)
        row = self._row(plan.name, plan.plan_id, after, 0, target=self._one_name(connection))
        if at is None:
            try:
                connection.execute(self._positions.insert().values(**row))
            except self._sa.exc.IntegrityError:
                raise _PositionTakenError from None
            self._check_alone(connection, plan.name)
        else:
            claim = self._positions.update().where(
                self._mine(plan.name), self._positions.c.plan_id == last
            )
            if connection.execute(claim.values(**row)).rowcount != 1:
                return None
        done = rows.apply(connection, at)
        if at is None:
            # Again: another first plan may have waited for the lock on the table, or held it.
            self._check_alone(connection, plan.name)
        counted = self._positions.update().where(self._mine(plan.name)).values(rows=done.rows)
        connection.execute(counted)
        return done

    def _check_alone(self, connection: Connection, name: str) -> None:
        """Refuse a first plan beside a mirror or a history, and one of these beside others."""
        table = self._table.described({})
        for other in other_writers(connection, self._positions, table, self._key, name):
            kept = _form_in(other.position)
            if kept is not None or self._form.follows_state:
                called = "" if other.sink == self._key else f", as '{other.sink}'"
                raise SinkFormError(
                    self._key,
                    f"checkpoint '{other.name}' writes into this table{called}"
                    + ("" if kept is None else f" and keeps a {kept} there")
                    + ": a table has one mirror or history, or rows that are added. Name another "
                    f"table; or, if '{other.name}' is given up, empty the table and call "
                    f"reset_position('{other.name}') of a sink for '{other.sink}'",
                )

    def _explained(self, error: SQLAlchemyError) -> SinkError:
        if is_contended(error):
            return SinkContendedError(self._key, reason(error))
        return SinkError(
            self._key,
            f"the database at {self._engine.url.render_as_string()} failed: {reason(error)}",
        )

    def _done(
        self, plan: ScanPlan, last: str, at: SinkPosition | None, rows: int
    ) -> SinkResult | None:
        # A new generation empties a mirror, even if it has no row yet.
        if plan.is_empty and at is not None and at.generation == plan.generation:
            return SinkResult(0, 0, {"table": self._key})
        if plan_state(self._key, plan, last, at) is PlanState.NEXT:
            return None
        known = last == plan.plan_id
        details = {"table": self._key, "rows_known": known}
        return SinkResult(rows if known else 0, 0, details, moved=0)

    def _state(self, connection: Connection, name: str) -> tuple[str, SinkPosition | None, int]:
        row = connection.execute(self._positions.select().where(self._mine(name))).first()
        if row is None:
            return "", None, 0
        kept, mine = _form_in(row.position), self._kept_form
        if kept != mine:
            raise SinkFormError(
                self._key,
                f"checkpoint '{name}' {_keeps(kept)} in this table, and the sink was opened to "
                f"do another thing: it {_keeps(mine)}. Open it with the same form, or use another "
                "checkpoint and another table",
            )
        return row.plan_id, SinkPosition.from_text(row.position), row.rows

    def _one_name(self, connection: Connection) -> str:
        """Return the name that stands for the table under all of its names."""
        if self._known_name is None:
            self._known_name = one_name(connection, self._table.described({}))
        return self._known_name

    @property
    def _kept_form(self) -> str | None:
        """The form, if rows must not be written in another one afterwards."""
        return str(self._form) if self._form.follows_state else None

    def _mine(self, name: str) -> Any:
        c = self._positions.c
        return self._sa.and_(c.sink == self._key, c.name == name)

    def _row(
        self, name: str, plan_id: str, at: SinkPosition, rows: int, target: str | None = None
    ) -> dict[str, Any]:
        return {
            "sink": self._key,
            "name": name,
            "plan_id": plan_id,
            "position": _with(at.to_text(), form=self._kept_form, target=target),
            "rows": rows,
            "written_ms": now_ms(),
        }

    def _prepare(self, name: str) -> None:
        with self._lock:
            if not self._ready:
                create_quietly(self._engine, self._positions)
                self._ready = True
        if len(name) > OLD_NAME_LENGTH:
            self._widen_names(name)

    def _widen_names(self, name: str) -> None:
        """Widen the column `name` in a table of positions that an earlier version created."""
        sa, dialect = self._sa, self._engine.dialect
        columns = sa.inspect(self._engine).get_columns(POSITIONS_TABLE, schema=self._schema)
        width = next(c["type"] for c in columns if c["name"] == "name").length
        if dialect.name == SQLITE or width is None or width >= len(name):
            return  # SQLite ignores widths.
        where = dialect.identifier_preparer.format_table(self._positions)
        change = f"ALTER TABLE {where} ALTER COLUMN name TYPE VARCHAR({NAME_LENGTH})"
        if dialect.name != "postgresql":
            raise SinkError(
                self._key,
                f"the checkpoint's name has {len(name)} characters, and the column `name` of "
                f"{where} takes {width}: widen it to VARCHAR({NAME_LENGTH}), or use a shorter "
                "name",
            )
        try:
            with self._engine.begin() as connection:
                execute_plainly(connection, change)
            return
        except sa.exc.DBAPIError as error:
            why = reason(error)
        raise SinkError(
            self._key,
            f"the checkpoint's name has {len(name)} characters, and {where} takes {width}; it "
            f"could not be widened: {why}. Let the table's owner run: {change}",
        )

    def _positions_table(self) -> Table:
        sa = self._sa
        table: Table = sa.Table(
            POSITIONS_TABLE,
            sa.MetaData(),
            sa.Column("sink", sa.String(255), primary_key=True),
            sa.Column("name", sa.String(NAME_LENGTH), primary_key=True),
            sa.Column("plan_id", sa.String(64), nullable=False),
            sa.Column("position", sa.Text, nullable=False),
            sa.Column("rows", sa.BigInteger, nullable=False),
            sa.Column("written_ms", sa.BigInteger, nullable=False),
            schema=self._schema,
        )
        return table


def _form_in(text: str) -> str | None:
    """Return the form that a stored position names; None if rows are added."""
    found = json.loads(text).get("form")
    return None if found is None else str(found)


def _with(text: str, **values: str | None) -> str:
    known = {name: value for name, value in values.items() if value is not None}
    return json.dumps(json.loads(text) | known) if known else text


def _keeps(form: str | None) -> str:
    return "adds rows" if form is None else f"keeps a {form}"


def _opened(source: EngineSource) -> Engine:
    import sqlalchemy as sa

    if source.url.get_backend_name() == SQLITE:
        return source.open(connect_args={"timeout": LOCK_TIMEOUT_S}, poolclass=sa.NullPool)
    return source.open(pool_pre_ping=True)


def _make(values: Values, _: FlussConnection) -> SqlSink:
    return SqlSink(
        values["url"],
        values["table"],
        schema=values["schema"],
        schema_policy=values["schema_policy"],
        replace_nul=values["replace_nul"],
        form=values["form"],
    )


def _dataset(values: Values, _: str) -> LineageNode:
    engine, schema, table = values["url"], values["schema"], values["table"]
    url = engine if isinstance(engine, str) else str(engine.url)
    return address_node(url, f"{schema}.{table}" if schema else table)


register(
    SinkDeclaration(
        name="sql",
        sink=SqlSink,
        summary="A table of a SQL database; it is created with the first increment.",
        promise="exactly once",
        how="rows and plan id in one transaction",
        place="table",
        fields=(
            SinkField("table", "The name of the table.", templated=True),
            SinkField(
                "url",
                "The URL of the database, as SQLAlchemy has it.",
                FieldKind.DATABASE,
                templated=True,
            ),
            SinkField("schema", "The schema of the table.", default=None, templated=True),
            SCHEMA_POLICY,
            SinkField(
                "replace_nul",
                "The text that replaces U+0000 in PostgreSQL; rows with it are refused if not "
                "given.",
                default=None,
            ),
            form_field(*SinkForm),
        ),
        make=_make,
        dataset=_dataset,
    )
)
