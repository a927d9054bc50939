"""Every source into every sink in every form, through everything that happens to a checkpoint.

A model says what the sink must hold after each step, or which error must be raised. Nothing else
may happen. The steps of one combination follow each other on one table and one sink: a first run,
the same run again, a run that died before its commit, a run that finds another's plan, a column
that is added, a reset. Mirrors hold the current rows, a history every version, and a contract
divides the rows between a sink and its quarantine.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from fluss_client import Config, FlussConnection, FlussTable
from fluss_client.errors import UnsupportedError
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.lake.state import read_table
from fluss_orchestrate.core.plan import METADATA_COLUMNS
from fluss_orchestrate.core.sinks import (
    FlussTableSink,
    FunctionSink,
    IcebergSink,
    ParquetSink,
    Sink,
    SinkChangesError,
    SinkSchemaError,
    SqlSink,
)
from fluss_orchestrate.core.sinks.contract import ContractSink
from fluss_orchestrate.core.sinks.errors import SinkFormError
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.incremental.events import COLUMNS, EventTables, rows

SOURCES = ("log", "key", "partitioned")
MIRRORS = ("sql mirror", "iceberg mirror", "fluss mirror")
KEEPING_STATE = (*MIRRORS, "sql history")
SINKS = (
    *("parquet", "iceberg", "sql", "fluss log", "fluss key", "function"),
    *("quarantine", *KEEPING_STATE),
)
GOOD_BELOW = 25
"""Rows with other ids go into quarantine."""
FORMS: dict[str, dict[str, Any]] = {
    "append": {},
    "changes": {"metadata_columns": ["_change_type"]},
    "metadata": {"metadata_columns": list(METADATA_COLUMNS)},
    "projection": {"columns": ["id", "text"]},
    "projected changes": {"columns": ["id", "text"], "metadata_columns": ["_change_type"]},
    "state": {"start": "state", "metadata_columns": list(METADATA_COLUMNS)},
}
META_TYPES = {
    "_change_type": pa.string(),
    "_offset": pa.int64(),
    "_timestamp": pa.timestamp("ms", "UTC"),
    "_bucket": pa.int32(),
    "_partition": pa.string(),
}
_numbers = itertools.count()
Held = Counter[tuple[Any, ...]]
"""Rows as (id, text), with the sign of their change where the form has it."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventTables]:
    address = f"embedded:{tmp_path_factory.mktemp('combinations')}"
    # No power cut is tested here.
    settings = {"bootstrap.servers": address, "embedded.synchronous": "off"}
    with FlussConnection.create(Config(settings)).result() as connection:
        admin = connection.get_admin().result()
        admin.create_database("walk").result()
        yield EventTables(connection, admin, "walk")


@dataclass
class Source:
    """A table that is written to, and the changes that its log must hold."""

    tables: EventTables
    kind: str
    table: FlussTable
    changes: list[tuple[str, int, str]] = field(default_factory=list)
    state: dict[int, str] = field(default_factory=dict)
    wider: bool = False

    @classmethod
    def make(cls, tables: EventTables, kind: str) -> Source:
        if kind == "key":
            return cls(tables, kind, tables.keyed())
        made = tables.events(2) if kind == "log" else tables.days("d1", "d2", buckets=1)
        return cls(tables, kind, made)

    def write(self, first: int) -> None:
        """Six new rows; a key table also gets an update and a delete of earlier ones."""
        is_keyed = self.kind == "key"
        opened = self.table.new_upsert() if is_keyed else self.table.new_append()
        with opened.create_writer() as writer:
            for day, ids in (("d1", range(first, first + 3)), ("d2", range(first + 3, first + 6))):
                batch = rows(ids, day)
                if self.wider:
                    batch = batch.append_column("more", pa.array([1] * 3, pa.int32()))
                writer.write_arrow(batch)
                self._note("+I" if is_keyed else "+A", {i: f"row {i}" for i in ids})
            if not is_keyed:
                return
            writer.write_arrow(batch.slice(0, 1).set_column(1, "text", pa.array([f"new {first}"])))
            self._note("-U", {first + 3: f"row {first + 3}"})
            self._note("+U", {first + 3: f"new {first}"})
            writer.delete({"id": first})
            self._note("-D", {first: f"row {first}"})

    def _note(self, sign: str, found: dict[int, str]) -> None:
        self.changes += [(sign, i, text) for i, text in found.items()]
        for i, text in found.items():
            if sign == "-D":
                del self.state[i]
            elif sign != "-U":
                self.state[i] = text

    def widen(self) -> None:
        path = self.table.get_table_path()
        added = [pa.field("more", pa.int32())]
        self.tables.admin.alter_table(path, add_columns=added).result()
        self.table, self.wider = self.tables.open(path), True


class Target:
    """One sink of each kind, and what it holds."""

    def __init__(self, tables: EventTables, kind: str, form: dict[str, Any], folder: Path) -> None:
        self.kind = kind
        self.marked = "_change_type" in form.get("metadata_columns", ())
        self._folder = folder
        self._connection = tables.connection
        self._given: list[pa.Table] = []
        self._catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": str(folder)}
        self._path = None
        if kind.startswith("fluss"):
            names = form.get("columns", list(COLUMNS))
            columns = {name: COLUMNS[name] for name in names}
            columns |= {name: META_TYPES[name] for name in form.get("metadata_columns", ())}
            columns.pop("_change_type", None)  # Fluss reserves the name
            made = tables.create(columns, None if kind == "fluss log" else ["id"])
            self._path = made.get_table_path()

    def sink(self, policy: str = "error") -> Sink:
        store, _, form = self.kind.partition(" ")
        form = form if self.kind in KEEPING_STATE else "append"
        if store == "parquet":
            return ParquetSink(self._folder / "files")
        if store == "quarantine":
            good, bad = (ParquetSink(self._folder / name) for name in ("files", "bad"))
            return ContractSink(good, [f"id < {GOOD_BELOW}"], "quarantine", bad)
        if store == "iceberg":
            return IcebergSink(self._catalog, "db.rows", form=form, schema_policy=policy)
        if store == "sql":
            url = f"sqlite:///{self._folder}/sink.db"
            return SqlSink(url, "rows", form=form, schema_policy=policy)
        if store == "function":
            return FunctionSink(lambda reader: self._given.append(reader.read_all()))
        assert self._path is not None
        return FlussTableSink(self._connection, self._path, form=form, schema_policy=policy)

    def held(self) -> Held:
        """What the sink holds now."""
        names = ["id", "text", *self._shown]
        found: Held = Counter()
        for table in self._tables(names):
            found.update(zip(*(table[name].to_pylist() for name in names), strict=True))
        return found

    @property
    def _shown(self) -> list[str]:
        """The columns that say what a row is."""
        if self.kind == "sql history":
            return ["is_current"]
        kept = self.marked and self.kind not in MIRRORS and not self.kind.startswith("fluss")
        return ["_change_type"] if kept else []

    def _tables(self, names: list[str]) -> list[pa.Table]:
        if self.kind in ("parquet", "quarantine"):
            found = [*self._folder.glob("files/*.parquet"), *self._folder.glob("bad/*.parquet")]
            return [pq.read_table(path, columns=names) for path in found]
        if self.kind == "function":
            return self._given
        if self.kind.startswith("iceberg"):
            catalog = open_catalog(self._catalog)
            if not catalog.table_exists("db.rows"):
                return []
            return [catalog.load_table("db.rows").scan(selected_fields=names).to_arrow()]
        if self.kind.startswith("sql"):
            engine = sa.create_engine(f"sqlite:///{self._folder}/sink.db", poolclass=sa.NullPool)
            if not sa.inspect(engine).has_table("rows"):
                return []
            with engine.connect() as connection:
                found = connection.execute(sa.text(f"select {', '.join(names)} from rows")).all()
            columns = list(zip(*found, strict=True)) or [()] * len(names)
            return [pa.table({n: list(c) for n, c in zip(names, columns, strict=True)})]
        return [read_table(self._connection, self._path, columns=names).read_all()]

    def check_quarantine(self) -> None:
        """Only bad rows are in quarantine, and no new image of one is in the sink."""
        for file in self._folder.glob("bad/*.parquet"):
            held = pq.read_table(file)["id"].to_pylist()
            assert min(held, default=GOOD_BELOW) >= GOOD_BELOW
        for file in self._folder.glob("files/*.parquet"):
            kept = pq.read_table(file).to_pylist()
            new = [row["id"] for row in kept if row.get("_change_type") not in ("-U", "-D")]
            assert max(new, default=0) < GOOD_BELOW


@dataclass
class Walk:
    """One combination, step by step."""

    source: Source
    target: Target
    form: dict[str, Any]
    store: CheckpointStore
    name: str
    read: int = 0
    """How many of the source's changes were read."""
    taken: list[tuple[str, int, str]] = field(default_factory=list)
    """Changes that the sink was given, in order."""
    closed: int = 0
    """How many of them came before a rebuild, which closed the versions of a history."""
    extra: list[tuple[str, int, str]] = field(default_factory=list)
    """Those of them that a function was given twice."""

    def scan(self) -> IncrementalScan:
        path = self.source.table.get_table_path()
        connection = self.source.tables.connection
        return IncrementalScan(connection, path, self.name, self.store, settle_ms=0, **self.form)

    def run(self, run_key: str, policy: str = "error") -> int:
        return run_increment(self.scan(), self.target.sink(policy), run_key).rows

    def takes(self, step: Callable[[], int], again: int = 0) -> None:
        """A step that brings all that is new, `again` times more into a sink that is not exact."""
        new = self.source.changes[self.read :]
        if not self.read and self.form.get("start") == "state":
            new = [("+I", i, text) for i, text in self.source.state.items()]
        assert step() == self.counted(new)
        self.read = len(self.source.changes)
        self.taken += new
        self.extra += new * again if self.target.kind == "function" else []
        self.check()

    def counted(self, changes: list[tuple[str, int, str]]) -> int:
        """How many of these changes a receipt counts: those that the sink itself gets."""
        if self.target.kind != "quarantine":
            return len(changes)
        return sum(sign in ("-U", "-D") or i < GOOD_BELOW for sign, i, _ in changes)

    def check(self) -> None:
        """Compare what the sink holds with the model."""
        given = self.taken + self.extra
        kind = self.target.kind
        if kind == "quarantine":
            self.target.check_quarantine()
        if kind == "sql history":
            expected = Counter(versions(given[: self.closed], closed=True))
            expected.update(versions(given[self.closed :]))
        elif kind == "fluss key":
            expected = Counter(current(given).items())
        elif kind in MIRRORS:
            expected = Counter(current(given[self.closed :]).items())
        elif self.target.marked:
            expected = Counter((i, text, sign) for sign, i, text in given)
        else:
            expected = Counter((i, text) for _, i, text in given)
        assert self.target.held() == expected


def current(changes: list[tuple[str, int, str]]) -> dict[int, str]:
    """The rows that changes leave."""
    state: dict[int, str] = {}
    for sign, i, text in changes:
        if sign == "-D":
            state.pop(i, None)
        elif sign != "-U":
            state[i] = text
    return state


def versions(
    changes: list[tuple[str, int, str]], closed: bool = False
) -> Iterator[tuple[Any, ...]]:
    """Every version of each key, and whether it is the current one."""
    last = current(changes)
    for sign, i, text in changes:
        if sign not in ("-U", "-D"):
            yield i, text, not closed and last.get(i) == text


def refused(source: str, sink: str, form: dict[str, Any]) -> type[Exception] | None:
    """The error of a first run, if there is one."""
    metadata = form.get("metadata_columns", ())
    if form.get("start") == "state" and source != "key":
        return UnsupportedError  # a log table has no state
    if source != "key":
        return SinkFormError if sink in KEEPING_STATE else None
    needed = METADATA_COLUMNS if sink == "sql history" else METADATA_COLUMNS[:1]
    # Changes of a key table go nowhere without their kind, but into functions.
    return None if sink == "function" or set(needed) <= set(metadata) else SinkChangesError


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("kind", SOURCES)
def test_a_combination(
    tables: EventTables, tmp_path: Path, kind: str, sink: str, form: str
) -> None:
    source = Source.make(tables, kind)
    target = Target(tables, sink, FORMS[form], tmp_path)
    store = CheckpointStore(MemoryEventLog())
    walk = Walk(source, target, FORMS[form], store, f"walk-{next(_numbers)}")
    source.write(0)
    error = refused(kind, sink, FORMS[form])
    if error is not None:
        for step in ("first", "first", "other"):
            with pytest.raises(error):
                walk.run(step)
        assert store.names() == []
        assert target.held() == Counter()
        return

    if target.marked and sink == "fluss log":
        # A log table cannot say what change a row is; the plan waits until it is abandoned.
        for step in ("first", "first", "other"):
            with pytest.raises(SinkSchemaError, match="_change_type"):
                walk.run(step)
        assert target.held() == Counter()
        return

    walk.takes(lambda: walk.run("first"))
    assert walk.run("first") == 0, "a committed run key writes nothing"
    walk.check()

    source.write(10)
    scan = walk.scan()
    dying = target.sink()
    dying.write(scan.plan("retried", sink=dying), scan.read)
    walk.takes(lambda: walk.run("retried"), again=1)

    source.write(20)
    left = walk.scan().plan("dead", sink=target.sink())
    source.write(30)
    walk.takes(lambda: walk.run("alive"))
    assert store.plan_of(walk.name, "dead", store.head(walk.name)) == left

    source.widen()
    source.write(40)
    if "columns" not in walk.form and sink not in ("parquet", "function", "quarantine"):
        with pytest.raises(SinkSchemaError, match="more"):
            walk.run("wider")
        walk.check()
    walk.takes(lambda: walk.run("wider", "add_columns"))

    if sink in KEEPING_STATE:
        walk.scan().reset("latest", "not from the middle")
        with pytest.raises(SinkFormError):
            walk.run("first", "add_columns")
        walk.check()
    walk.scan().reset("earliest", "everything once more")
    again = walk.counted(source.changes)
    assert walk.run("first", "add_columns") == again, "a reset frees run keys"
    walk.closed = len(walk.taken)
    walk.taken += source.changes
    walk.check()
