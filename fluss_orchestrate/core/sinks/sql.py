"""A table of a SQL database as a sink: the rows of a plan and its id are one transaction.

The table `fluss_sink_positions` in the same schema has one row per target table and checkpoint: the
last plan and where it ended. A transaction writes this row first, so a second process with the same
plan waits for the first one, and then finds the plan there. Identifiers are always quoted, so names
keep their case. Errors contain neither rows nor the database's password (`core/sql_engine.py`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_client.errors import ClientError, ConfigError
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import (
    ReadPlan,
    SchemaPolicy,
    SinkForm,
    SinkResult,
    columns_to_add,
)
from fluss_orchestrate.core.sinks.errors import SinkContendedError, SinkError, SinkValueError
from fluss_orchestrate.core.sinks.position import (
    PlanState,
    SinkPosition,
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
    register,
)
from fluss_orchestrate.core.sinks.sql_types import SQLITE, SqlValues, UnfitValueError, sql_type
from fluss_orchestrate.core.sql_engine import (
    LOCK_TIMEOUT_S,
    EngineSource,
    hides_sql,
    is_contended,
    reason,
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
ROWS_PER_STATEMENT = 2_000
ATTEMPTS_MAX = 10
WITHOUT_THE_COLUMN = (
    "read without this column: `abandon` the plan, which keeps its columns, then set columns="
)


class _PositionTakenError(Exception):
    """Another process wrote the first position of this checkpoint: roll the transaction back."""


class SqlSink:
    """Appends plans to one SQL table.

    A table that does not exist is created with the columns of the first plan. Nested values are
    stored in JSON columns. A plan is one transaction: limit its size with `max_offsets`. A value
    that the database cannot store is refused with `SinkValueError`.

    Args:
        engine: An SQLAlchemy engine, or its URL.
        table: The name of the table.
        schema: The schema of the table.
        schema_policy: What happens with columns that the table lacks.
        create: Whether a table that does not exist is created.
        replace_nul: The text that replaces the character U+0000 where the database cannot store it
            (PostgreSQL). None refuses such rows.

    Raises:
        ConfigError: The URL is not one of SQLAlchemy, or its driver is not installed.
        MissingExtraError: SQLAlchemy is not installed.
    """

    exactly_once = True
    form = SinkForm.APPEND

    def __init__(
        self,
        engine: Engine | str,
        table: str,
        *,
        schema: str | None = None,
        schema_policy: SchemaPolicy | str = SchemaPolicy.ERROR,
        create: bool = True,
        replace_nul: str | None = None,
    ) -> None:
        source = EngineSource.of(engine, "a SQL sink") if isinstance(engine, str) else engine
        engine = ""  # A traceback may show the variables of this frame, and the URL has a password.
        if isinstance(source, ClientError):
            raise source
        import sqlalchemy

        self._sa = sqlalchemy
        self._engine: Engine = _opened(source) if isinstance(source, EngineSource) else source
        if replace_nul is not None and "\x00" in replace_nul:
            raise ConfigError("replace_nul cannot hold U+0000 itself")
        self._replace_nul = replace_nul
        self._name = table
        self._schema = schema
        self._policy = SchemaPolicy(schema_policy)
        self._create = create
        self._key = f"{schema}.{table}" if schema else table
        self._positions = self._positions_table()
        self._ready = False
        self._lock = threading.Lock()

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
        if plan.is_empty:
            return SinkResult(0)
        self._prepare(plan.name)
        with self._engine.connect() as connection:
            return self._done(plan, *self._state(connection, plan.name))

    @hides_sql
    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Insert all rows and move the position, in one transaction.

        Args:
            plan: The plan.
            read: Returns a reader of the rows of a part of the plan.

        Raises:
            SinkValueError: A value cannot be stored; nothing of the plan was written.
            SinkPositionError: The plan does not begin where the table's position is.
            SinkContendedError: Other transactions were always faster; the plan can be retried.
            SinkError: The database refused the rows or does not answer.
        """
        done = self.already_done(plan)
        for _ in range(ATTEMPTS_MAX):
            if done is not None:
                return done
            reader = read(plan)
            target, values = self._target(reader.schema)
            try:
                with self._engine.begin() as connection:
                    done = self._write(connection, plan, reader, target, values)
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

    def _write(
        self,
        connection: Connection,
        plan: ScanPlan,
        reader: pa.RecordBatchReader,
        target: Table,
        values: SqlValues,
    ) -> SinkResult | None:
        """Write the plan; return None if another process moved the position in the meantime."""
        last, at, _ = self._state(connection, plan.name)
        done = self._done(plan, last, at, 0)
        if done is not None:
            return done
        row = self._row(plan.name, plan.plan_id, position_after(plan, at), 0)
        if at is None:
            try:
                connection.execute(self._positions.insert().values(**row))
            except self._sa.exc.IntegrityError:
                raise _PositionTakenError from None
        else:
            claim = self._positions.update().where(
                self._mine(plan.name), self._positions.c.plan_id == last
            )
            if connection.execute(claim.values(**row)).rowcount != 1:
                return None
        rows = size = 0
        for part in _chunks(reader):
            self._insert(connection, plan, target, values, part, rows)
            rows, size = rows + part.num_rows, size + part.nbytes
        counted = self._positions.update().where(self._mine(plan.name)).values(rows=rows)
        connection.execute(counted)
        return SinkResult(rows, size, {"table": self._key})

    def _insert(
        self,
        connection: Connection,
        plan: ScanPlan,
        target: Table,
        values: SqlValues,
        part: pa.RecordBatch,
        before: int,
    ) -> None:
        """Insert some rows of the plan; `before` rows of it were inserted earlier."""
        try:
            connection.execute(target.insert(), values.rows(part))
            return
        except UnfitValueError as unfit:
            row, column, kind, way_out = before + unfit.row, unfit.column, unfit.kind, unfit.way_out
            failure: SinkError = SinkValueError(
                self._key,
                f"row {row} of plan {plan.plan_id}{_place(plan, row)} has in column '{column}' "
                f"{kind}; nothing of the plan was written. Ways out: "
                f"{'; or '.join(filter(None, (way_out, WITHOUT_THE_COLUMN)))}",
                column,
                row,
                kind,
            )
        except self._sa.exc.OperationalError:
            raise  # The connection, a lock or the disk failed: the rows are not the reason.
        except self._sa.exc.SQLAlchemyError as error:
            failure = self._refused(plan, before, part.num_rows, reason(error))
        except (ValueError, OverflowError, TypeError) as error:
            failure = self._refused(plan, before, part.num_rows, type(error).__name__)
        raise failure

    def _refused(self, plan: ScanPlan, before: int, count: int, why: str) -> SinkValueError:
        return SinkValueError(
            self._key,
            f"the database refused rows {before} to {before + count - 1} of plan {plan.plan_id}"
            f"{_place(plan, before)}: {why}; nothing of the plan was written. Ways out: let the "
            "table take such rows (its types and constraints), and run again; or "
            f"{WITHOUT_THE_COLUMN}",
            None,
            None,
            why,
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
        if plan_state(self._key, plan, last, at) is PlanState.NEXT:
            return None
        known = last == plan.plan_id
        details = {"table": self._key, "rows_known": known}
        return SinkResult(rows if known else 0, 0, details, moved=0)

    def _state(self, connection: Connection, name: str) -> tuple[str, SinkPosition | None, int]:
        row = connection.execute(self._positions.select().where(self._mine(name))).first()
        if row is None:
            return "", None, 0
        return row.plan_id, SinkPosition.from_text(row.position), row.rows

    def _mine(self, name: str) -> Any:
        c = self._positions.c
        return self._sa.and_(c.sink == self._key, c.name == name)

    def _row(self, name: str, plan_id: str, at: SinkPosition, rows: int) -> dict[str, Any]:
        return {
            "sink": self._key,
            "name": name,
            "plan_id": plan_id,
            "position": at.to_text(),
            "rows": rows,
            "written_ms": now_ms(),
        }

    def _prepare(self, name: str) -> None:
        with self._lock:
            if not self._ready:
                self._create_quietly(self._positions)
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
                connection.exec_driver_sql(change)
            return
        except sa.exc.DBAPIError as error:
            why = reason(error)
        raise SinkError(
            self._key,
            f"the checkpoint's name has {len(name)} characters, and {where} takes {width}; it "
            f"could not be widened: {why}. Let the table's owner run: {change}",
        )

    def _create_quietly(self, table: Table) -> None:
        sa = self._sa
        try:
            table.create(self._engine, checkfirst=True)
        except (sa.exc.ProgrammingError, sa.exc.OperationalError, sa.exc.IntegrityError):
            # Another process may have created the table in the meantime. If not, this query fails.
            with self._engine.connect() as connection:
                connection.execute(sa.select(sa.func.count()).select_from(table))

    def _target(self, columns: pa.Schema) -> tuple[Table, SqlValues]:
        """Create or extend the table; return it with the columns of the plan, and its encoder."""
        sa, dialect = self._sa, self._engine.dialect.name
        declared = self._table({f.name: sql_type(f.type, dialect) for f in columns})
        inspector = sa.inspect(self._engine)
        if not inspector.has_table(self._name, schema=self._schema):
            if not self._create:
                raise SinkError(self._key, "there is no such table")
            self._create_quietly(declared)
        present = {
            column["name"]: column["type"]
            for column in sa.inspect(self._engine).get_columns(self._name, schema=self._schema)
        }
        for field in columns_to_add(self._key, present, columns, self._policy):
            self._add_column(declared, field.name)
        values = SqlValues(columns, dialect, present, self._replace_nul)
        return self._table(values.bound_types()), values

    def _table(self, types: Mapping[str, Any]) -> Table:
        sa = self._sa
        quoted = sa.quoted_name
        table: Table = sa.Table(
            quoted(self._name, True),
            sa.MetaData(),
            *(sa.Column(quoted(name, True), kind) for name, kind in types.items()),
            schema=None if self._schema is None else quoted(self._schema, True),
        )
        return table

    def _add_column(self, target: Table, name: str) -> None:
        sa = self._sa
        dialect = self._engine.dialect
        column = sa.schema.CreateColumn(target.c[name]).compile(dialect=dialect)
        where = dialect.identifier_preparer.format_table(target)
        try:
            with self._engine.begin() as connection:
                # Not with text(): it would read a colon in a name as a parameter.
                connection.exec_driver_sql(f"ALTER TABLE {where} ADD COLUMN {column}")
        except (sa.exc.ProgrammingError, sa.exc.OperationalError):
            found = sa.inspect(self._engine).get_columns(self._name, schema=self._schema)
            if name not in [c["name"] for c in found]:
                raise

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


def _opened(source: EngineSource) -> Engine:
    import sqlalchemy as sa

    if source.url.get_backend_name() == SQLITE:
        return source.open(connect_args={"timeout": LOCK_TIMEOUT_S}, poolclass=sa.NullPool)
    return source.open(pool_pre_ping=True)


def _chunks(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        for start in range(0, batch.num_rows, ROWS_PER_STATEMENT):
            yield batch.slice(start, ROWS_PER_STATEMENT)


def _place(plan: ScanPlan, row: int) -> str:
    """Return the bucket and offset of a row, as text; empty if rows are not offsets of a log."""
    if plan.kind != "log":
        return ""
    for part in plan.ranges:
        if row < part.count:
            of = f" of partition {part.partition}" if part.partition else ""
            return f" (bucket {part.bucket}{of}, offset {part.start + row})"
        row -= part.count
    return ""


def _make(values: Values, _: FlussConnection) -> SqlSink:
    return SqlSink(
        values["url"],
        values["table"],
        schema=values["schema"],
        schema_policy=values["schema_policy"],
        replace_nul=values["replace_nul"],
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
        ),
        make=_make,
        dataset=_dataset,
    )
)
