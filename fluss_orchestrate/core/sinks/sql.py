"""A table of a SQL database: the rows of a plan and the plan's id in one transaction.

Beside the target stands `fluss_sink_positions`: per target and checkpoint name the last plan and
where it ended. That row is written first, so that of two runs of one plan the second waits for
the first, and then finds the plan there. Identifiers are always quoted: names keep their case.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_client.errors import ConfigError, MissingExtraError
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.schema_policy import SchemaPolicy, columns_to_add
from fluss_orchestrate.core.sink_errors import SinkContendedError, SinkError
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkResult
from fluss_orchestrate.core.sinks.position import SinkPosition, Standing, position_after, standing
from fluss_orchestrate.core.sinks.sql_types import as_values, sql_type

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table

POSITIONS_TABLE = "fluss_sink_positions"
ROWS_PER_STATEMENT = 2_000
LOCK_TIMEOUT_S = 60
ATTEMPTS_MAX = 10


class SqlSink:
    """Appends plans to one SQL table; `engine` is an SQLAlchemy engine or its URL.

    A table that does not exist is created with the columns of the first plan. Nested values go
    into JSON columns. A plan is one transaction, however large: cap plans with `max_offsets`.
    """

    exactly_once = True
    needs_change_type = True

    def __init__(
        self,
        engine: Engine | str,
        table: str,
        *,
        schema: str | None = None,
        schema_policy: SchemaPolicy | str = SchemaPolicy.ERROR,
        create: bool = True,
    ) -> None:
        try:
            import sqlalchemy
        except ImportError:
            raise MissingExtraError("SQLAlchemy", "sql") from None
        self._sa = sqlalchemy
        self._engine = _opened(engine)
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
        """The kind of database, the database's name and the table; neither host nor user."""
        url = self._engine.url
        database = url.database or ""
        if url.get_backend_name() == "sqlite" and database not in ("", ":memory:"):
            database = os.path.abspath(database)
        return f"sql:{url.get_backend_name()}:{database}:{self._key}"

    def position(self, name: str) -> TablePosition | None:
        """Where the table is with a checkpoint; None if it holds nothing of it."""
        self._prepare()
        with self._engine.connect() as connection:
            at = self._state(connection, name)[1]
        return None if at is None else at.offsets

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """What the table holds of the plan; `SinkPositionError` if the plan cannot follow."""
        if plan.is_empty:
            return SinkResult(0)
        self._prepare()
        with self._engine.connect() as connection:
            return self._done(plan, *self._state(connection, plan.name))

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Insert all rows and move the position, in one transaction."""
        done = self.already_done(plan)
        attempt = 0
        while done is None:
            reader = read(plan)
            target = self._target(reader.schema)
            try:
                with self._engine.begin() as connection:
                    done = self._write(connection, plan, reader, target)
            except self._sa.exc.IntegrityError:
                # Somebody else wrote the position first, or a row breaks the target's rules.
                done = self.already_done(plan)
                if done is None:
                    raise
            attempt += 1
            if done is None and attempt >= ATTEMPTS_MAX:
                raise SinkContendedError(self._key, f"plan {plan.plan_id} lost {attempt} races")
        return done

    def reset_position(self, name: str, position: TablePosition | None = None) -> None:
        """Set, or forget, where the table is with a checkpoint, after its rows were put right."""
        self._prepare()
        mine = self._mine(name)
        with self._engine.begin() as connection:
            connection.execute(self._positions.delete().where(mine))
            if position is not None:
                row = self._row(name, "", SinkPosition(position), 0)
                connection.execute(self._positions.insert().values(**row))

    def _write(
        self, connection: Connection, plan: ScanPlan, reader: pa.RecordBatchReader, target: Table
    ) -> SinkResult | None:
        """None when the position moved between the look at it and the claim."""
        last, at, _ = self._state(connection, plan.name)
        done = self._done(plan, last, at, 0)
        if done is not None:
            return done
        row = self._row(plan.name, plan.plan_id, position_after(plan, at), 0)
        if at is None:
            connection.execute(self._positions.insert().values(**row))
        else:
            claim = self._positions.update().where(
                self._mine(plan.name), self._positions.c.plan_id == last
            )
            if connection.execute(claim.values(**row)).rowcount != 1:
                return None
        rows = size = 0
        for chunk, nbytes in _chunks(reader):
            connection.execute(target.insert(), chunk)
            rows, size = rows + len(chunk), size + nbytes
        counted = self._positions.update().where(self._mine(plan.name)).values(rows=rows)
        connection.execute(counted)
        return SinkResult(rows, size, {"table": self._key})

    def _done(
        self, plan: ScanPlan, last: str, at: SinkPosition | None, rows: int
    ) -> SinkResult | None:
        if standing(self._key, plan, last, at) is Standing.NEXT:
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

    def _prepare(self) -> None:
        with self._lock:
            if not self._ready:
                self._create_quietly(self._positions)
                self._ready = True

    def _create_quietly(self, table: Table) -> None:
        sa = self._sa
        try:
            table.create(self._engine, checkfirst=True)
        except (sa.exc.ProgrammingError, sa.exc.OperationalError, sa.exc.IntegrityError):
            # Another process created it between the look and the creation; if not, this tells.
            with self._engine.connect() as connection:
                connection.execute(sa.select(sa.func.count()).select_from(table))

    def _target(self, columns: pa.Schema) -> Table:
        """The target with exactly the plan's columns, after making it fit."""
        sa = self._sa
        quoted = sa.quoted_name
        target: Table = sa.Table(
            quoted(self._name, True),
            sa.MetaData(),
            *(sa.Column(quoted(f.name, True), sql_type(f.type)) for f in columns),
            schema=None if self._schema is None else quoted(self._schema, True),
        )
        inspector = sa.inspect(self._engine)
        if not inspector.has_table(self._name, schema=self._schema):
            if not self._create:
                raise SinkError(self._key, "there is no such table")
            self._create_quietly(target)
        present = [
            column["name"]
            for column in sa.inspect(self._engine).get_columns(self._name, schema=self._schema)
        ]
        for field in columns_to_add(self._key, present, columns, self._policy):
            self._add_column(target, field.name)
        return target

    def _add_column(self, target: Table, name: str) -> None:
        sa = self._sa
        dialect = self._engine.dialect
        column = sa.schema.CreateColumn(target.c[name]).compile(dialect=dialect)
        where = dialect.identifier_preparer.format_table(target)
        try:
            with self._engine.begin() as connection:
                # Not as text(), which would take a colon in a name for a parameter.
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
            sa.Column("name", sa.String(255), primary_key=True),
            sa.Column("plan_id", sa.String(64), nullable=False),
            sa.Column("position", sa.Text, nullable=False),
            sa.Column("rows", sa.BigInteger, nullable=False),
            sa.Column("written_ms", sa.BigInteger, nullable=False),
            schema=self._schema,
        )
        return table


def _opened(engine: Engine | str) -> Engine:
    import sqlalchemy as sa

    if not isinstance(engine, str):
        return engine
    try:
        url = sa.make_url(engine)
    except sa.exc.ArgumentError as error:
        raise ConfigError(f"a SQL sink needs an SQLAlchemy URL: {error}") from None
    if url.get_backend_name() == "sqlite":
        return sa.create_engine(
            url, connect_args={"timeout": LOCK_TIMEOUT_S}, poolclass=sa.NullPool
        )
    return sa.create_engine(url, pool_pre_ping=True)


def _chunks(reader: pa.RecordBatchReader) -> Iterator[tuple[list[dict[str, Any]], int]]:
    for batch in reader:
        for start in range(0, batch.num_rows, ROWS_PER_STATEMENT):
            part = batch.slice(start, ROWS_PER_STATEMENT)
            yield as_values(part), part.nbytes
