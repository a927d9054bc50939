"""Checkpoints in a SQL database: SQLite for one machine, PostgreSQL for many.

With the primary key (name, sequence), only the first insert of a sequence succeeds. The server must
not lose what it has committed: no asynchronous replica, no `synchronous_commit = off`. Errors are
typed and contain neither an event nor the password of the database (`core/sql_engine.py`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fluss_client.errors import ClientError, ConfigError, FlussError
from fluss_orchestrate.core.checkpoints.events import INDEXED_KINDS, Event, EventKind
from fluss_orchestrate.core.checkpoints.known_heads import KnownHeads
from fluss_orchestrate.core.checkpoints.records import (
    RecordKey,
    RecordRow,
    rebuilt,
    recorded,
)
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.errors import CheckpointStoreError
from fluss_orchestrate.core.sql_engine import (
    LOCK_TIMEOUT_S,
    EngineSource,
    hides_sql,
    reason,
    sql_state,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine, Table
    from sqlalchemy.exc import SQLAlchemyError

DEFAULT_SQL_TABLE = "fluss_checkpoints"
PROGRAM_LIMIT_EXCEEDED = "54000"
WRITE_ATTEMPTS_MAX = 5
RECORDS_AT_ONCE = 100
_COLUMNS = ("name", "seq", "kind", "nonce", "run_key", "plan_id", "created_ms", "body")


class SqlCheckpointStore(CheckpointStore):
    """A checkpoint store in a table of a SQL database. The table is created when it is first used.

    Args:
        url: The SQLAlchemy URL of the database.
        table: The name of the table.
    """

    def __init__(self, url: str, table: str = DEFAULT_SQL_TABLE) -> None:
        source = EngineSource.of(url, "a SQL checkpoint store")
        url = ""  # A report may show this frame's variables, and the URL may hold a password.
        if isinstance(source, ClientError):
            raise source
        super().__init__(SqlEventLog(source, table))


class SqlEventLog:
    """Events as rows of a SQL table. After a fork each process opens connections of its own."""

    def __init__(self, source: EngineSource, table: str) -> None:
        import sqlalchemy

        self._sa = sqlalchemy
        self._source = source
        self._rows = _table(table)
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._pid = -1
        self._heads = KnownHeads()

    def _opened(self) -> Engine:
        with self._lock:
            if self._engine is None or self._pid != os.getpid():
                if self._engine is not None:
                    # The connections belong to the parent process, so this one must not close them.
                    self._engine.dispose(close=False)
                self._engine = self._open()
                self._pid = os.getpid()
            return self._engine

    def _open(self) -> Engine:
        sa, url = self._sa, self._source.url
        if url.get_backend_name() == "sqlite":
            engine = self._source.open(
                connect_args={"timeout": LOCK_TIMEOUT_S, "isolation_level": None},
                poolclass=sa.NullPool if url.database else sa.StaticPool,
            )
            sa.event.listen(engine, "connect", _durable)
        else:
            engine = self._source.open(pool_pre_ping=True)
        try:
            self._rows.metadata.create_all(engine)
        except (sa.exc.IntegrityError, sa.exc.ProgrammingError, sa.exc.OperationalError):
            # Another process may have created it after the check; if not, this raises the error.
            with engine.connect() as connection:
                connection.execute(sa.select(self._rows.c.seq).limit(1))
        return engine

    @hides_sql
    def head(self, name: str, run_key: str | None = None) -> Event | None:
        """Return the last event of a name. A known one costs one query for its number."""
        c = self._rows.c
        known = self._heads.get(name)
        if known is not None:
            query = self._sa.select(c.seq, c.nonce).where(c.name == name)
            with self._opened().connect() as connection:
                last = connection.execute(query.order_by(c.seq.desc()).limit(1)).first()
            if last is not None and (int(last.seq), last.nonce) == (known.sequence, known.nonce):
                return known
        row = self._one(c.name == name, descending=True)
        return None if row is None else self._remembered([row])[0]

    def seen_head(self, name: str) -> Event | None:
        """Return None: a look whether the event is still the last one takes one short query."""
        return None

    @hides_sql
    def heads(self, names: Sequence[str], known: Mapping[str, Event]) -> dict[str, Event]:
        """Return the last events of many names: one query for their numbers, then the new ones."""
        sa, c = self._sa, self._rows.c
        newest = sa.select(c.name, sa.func.max(c.seq).label("seq")).group_by(c.name).subquery()
        same = sa.and_(c.name == newest.c.name, c.seq == newest.c.seq)
        query = sa.select(c.name, c.seq, c.nonce).join(newest, same)
        with self._opened().connect() as connection:
            last = {str(name): (int(seq), nonce) for name, seq, nonce in connection.execute(query)}
        found: dict[str, Event] = {}
        new: list[RecordKey] = []
        for name in names:
            before = known.get(name) or self._heads.get(name)
            if before is not None and last.get(name) == (before.sequence, before.nonce):
                found[name] = before
            elif name in last:
                new.append((name, last[name][0]))
        for first in range(0, len(new), RECORDS_AT_ONCE):
            rows = self._fetched(new[first : first + RECORDS_AT_ONCE])
            found |= {event.name: event for event in self._remembered(rows, known)}
        return {name: found[name] for name in names if name in found}

    @hides_sql
    def event(self, name: str, sequence: int) -> Event | None:
        """Return one event."""
        found = rebuilt(self._fetched([(name, sequence)]), self._fetched, self._heads)
        return found[0] if found else None

    @hides_sql
    def events(self, name: str, start: int, stop: int) -> list[Event]:
        """Return the events of some sequences, in order."""
        c = self._rows.c
        query = (
            self._sa.select(self._rows)
            .where(c.name == name, c.seq >= start, c.seq < stop)
            .order_by(c.seq)
        )
        with self._opened().connect() as connection:
            rows = [_record(row) for row in connection.execute(query).mappings()]
        return rebuilt(rows, self._fetched, self._heads)

    @hides_sql
    def plan_event_of(self, name: str, run_key: str) -> Event | None:
        """Return the last event that gave the run key a plan or took it away."""
        c = self._rows.c
        kinds = [str(kind) for kind in INDEXED_KINDS]
        where = self._sa.and_(c.name == name, c.run_key == run_key, c.kind.in_(kinds))
        row = self._one(where, descending=True)
        if row is None or row["kind"] != EventKind.PLAN:
            return None
        return rebuilt([row], self._fetched, self._heads)[0]

    @hides_sql
    def append(self, event: Event, previous: Event | None) -> Event | None:
        """Insert the event, and compare the nonce of the row that is then in the table."""
        sa = self._sa
        made, body = recorded(event, previous)
        values = {
            "name": event.name,
            "seq": event.sequence,
            "kind": str(event.kind),
            "nonce": event.nonce,
            "run_key": event.run_key,
            "plan_id": event.plan_id,
            "created_ms": event.created_ms,
            "body": body,
        }
        for attempt in range(1, WRITE_ATTEMPTS_MAX + 1):
            try:
                with self._opened().begin() as connection:
                    connection.execute(sa.insert(self._rows).values(values))
            except sa.exc.IntegrityError:
                # Taken: by another, or by this very attempt when its answer was lost.
                break
            except (sa.exc.OperationalError, sa.exc.InterfaceError):
                if attempt == WRITE_ATTEMPTS_MAX:
                    raise
            else:
                break
        if self._nonce(event.name, event.sequence) != event.nonce:
            return None
        return self._heads.remember(made)

    def _nonce(self, name: str, sequence: int) -> str | None:
        c = self._rows.c
        query = self._sa.select(c.nonce).where(c.name == name, c.seq == sequence)
        with self._opened().connect() as connection:
            found = connection.execute(query).scalar_one_or_none()
            return None if found is None else str(found)

    @hides_sql
    def names(self) -> list[str]:
        """Return every name."""
        query = self._sa.select(self._rows.c.name).distinct()
        with self._opened().connect() as connection:
            return [str(name) for name in connection.execute(query).scalars()]

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._engine is not None and self._pid == os.getpid():
                self._engine.dispose()
            self._engine = None

    def _explained(self, error: SQLAlchemyError) -> FlussError:
        if sql_state(error) == PROGRAM_LIMIT_EXCEEDED:
            return ConfigError(
                f"the checkpoint's name and run key are together too long for an index of "
                f"{self._source}: use shorter ones ({reason(error)})"
            )
        return CheckpointStoreError(
            f"the checkpoint store {self._source} does not answer: {reason(error)}"
        )

    def _remembered(
        self, rows: Sequence[RecordRow], known: Mapping[str, Event] = MappingProxyType({})
    ) -> list[Event]:
        before = {row["name"]: self._heads.get(row["name"]) for row in rows}
        upon = {name: event or known.get(name) for name, event in before.items()}
        found = {name: event for name, event in upon.items() if event is not None}
        events = rebuilt(rows, self._fetched, found, at_once=True)
        return [self._heads.remember(event) for event in events]

    def _fetched(self, keys: Sequence[RecordKey]) -> list[RecordRow]:
        """Return the records of some names and sequences that exist."""
        sa, c = self._sa, self._rows.c
        found: list[RecordRow] = []
        with self._opened().connect() as connection:
            for first in range(0, len(keys), RECORDS_AT_ONCE):
                part = keys[first : first + RECORDS_AT_ONCE]
                query = sa.select(self._rows).where(sa.tuple_(c.name, c.seq).in_(part))
                found += [_record(row) for row in connection.execute(query).mappings()]
        return found

    def _one(self, where: Any, descending: bool = False) -> RecordRow | None:
        c = self._rows.c
        order = c.seq.desc() if descending else c.seq
        query = self._sa.select(self._rows).where(where).order_by(order).limit(1)
        with self._opened().connect() as connection:
            row = connection.execute(query).mappings().first()
            return None if row is None else _record(row)


def _table(name: str) -> Table:
    import sqlalchemy as sa

    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("name", sa.String(600), primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("nonce", sa.String(64), nullable=False),
        sa.Column("run_key", sa.Text, nullable=False),
        sa.Column("plan_id", sa.String(64), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Index(f"{name}_runs", "name", "run_key", "seq"),
    )


def _durable(connection: Any, _: Any) -> None:
    """Let many readers work beside one writer, and make a commit survive a power cut."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _record(row: Any) -> RecordRow:
    return {**{name: row[name] for name in _COLUMNS}, "body": bytes(row["body"])}
