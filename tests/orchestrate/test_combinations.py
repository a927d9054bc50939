"""Every source into every sink in every form, through everything that happens to a checkpoint.

A model says what the sink must hold after each step, or which error must be raised. Nothing else
may happen. The steps of one combination follow each other on one table and one sink: a first run,
the same run again, a run that died before its commit, a run that finds another's plan, a column
that is added, a reset.
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
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.incremental.events import COLUMNS, EventTables, rows

SOURCES = ("log", "key", "partitioned")
SINKS = ("parquet", "iceberg", "sql", "fluss log", "fluss key", "function")
FORMS: dict[str, dict[str, Any]] = {
    "append": {},
    "changes": {"metadata_columns": ["_change_type"]},
    "metadata": {"metadata_columns": list(METADATA_COLUMNS)},
    "projection": {"columns": ["id", "text"]},
    "projected changes": {"columns": ["id", "text"], "metadata_columns": ["_change_type"]},
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
    with FlussConnection.create(Config({"bootstrap.servers": address})).result(30) as connection:
        admin = connection.get_admin().result(30)
        admin.create_database("walk").result(30)
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
        for day, ids in (("d1", range(first, first + 3)), ("d2", range(first + 3, first + 6))):
            batch = rows(ids, day)
            if self.wider:
                batch = batch.append_column("more", pa.array([1] * 3, pa.int32()))
            if self.kind == "key":
                self.tables.upsert(self.table, batch)
            else:
                self.tables.append(self.table, batch)
            self._note("+I" if self.kind == "key" else "+A", {i: f"row {i}" for i in ids})
        if self.kind == "key":
            changed = batch.slice(0, 1).set_column(1, "text", pa.array([f"new {first}"]))
            self.tables.upsert(self.table, changed)
            self._note("-U", {first + 3: f"row {first + 3}"})
            self._note("+U", {first + 3: f"new {first}"})
            with self.table.new_upsert().create_writer() as writer:
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
        self.tables.admin.alter_table(path, add_columns=added).result(30)
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
            made = tables.create(columns, ["id"] if kind == "fluss key" else None)
            self._path = made.get_table_path()

    def sink(self, policy: str = "error") -> Sink:
        if self.kind == "parquet":
            return ParquetSink(self._folder / "files")
        if self.kind == "iceberg":
            return IcebergSink(self._catalog, "db.rows", schema_policy=policy)
        if self.kind == "sql":
            return SqlSink(f"sqlite:///{self._folder}/sink.db", "rows", schema_policy=policy)
        if self.kind == "function":
            return FunctionSink(lambda reader: self._given.append(reader.read_all()))
        assert self._path is not None
        return FlussTableSink(self._connection, self._path, schema_policy=policy)

    def held(self) -> Held:
        """What the sink holds now."""
        names = ["id", "text", *(["_change_type"] if self._shows_changes else [])]
        found: Held = Counter()
        for table in self._tables(names):
            found.update(zip(*(table[name].to_pylist() for name in names), strict=True))
        return found

    @property
    def _shows_changes(self) -> bool:
        return self.marked and not self.kind.startswith("fluss")

    def _tables(self, names: list[str]) -> list[pa.Table]:
        if self.kind == "parquet":
            files = (self._folder / "files").glob("*.parquet")
            return [pq.read_table(path, columns=names) for path in files]
        if self.kind == "function":
            return self._given
        if self.kind == "iceberg":
            catalog = open_catalog(self._catalog)
            if not catalog.table_exists("db.rows"):
                return []
            return [catalog.load_table("db.rows").scan(selected_fields=names).to_arrow()]
        if self.kind == "sql":
            engine = sa.create_engine(f"sqlite:///{self._folder}/sink.db", poolclass=sa.NullPool)
            if not sa.inspect(engine).has_table("rows"):
                return []
            with engine.connect() as connection:
                found = connection.execute(sa.text(f"select {', '.join(names)} from rows")).all()
            columns = list(zip(*found, strict=True)) or [()] * len(names)
            return [pa.table({n: list(c) for n, c in zip(names, columns, strict=True)})]
        return [read_table(self._connection, self._path, columns=names).read_all()]


@dataclass
class Walk:
    """One combination, step by step."""

    source: Source
    target: Target
    form: dict[str, Any]
    store: CheckpointStore
    name: str
    taken: list[tuple[str, int, str]] = field(default_factory=list)
    """Changes that the sink was given, in order."""
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
        new = self.source.changes[len(self.taken) :]
        assert step() == len(new)
        self.taken += new
        self.extra += new * again if self.target.kind == "function" else []
        self.check()

    def check(self) -> None:
        """Compare what the sink holds with the model."""
        given = self.taken + self.extra
        if self.target.kind == "fluss key":
            state: dict[int, str] = {}
            for sign, i, text in given:
                if sign == "-D":
                    state.pop(i, None)
                elif sign != "-U":
                    state[i] = text
            expected: Held = Counter(state.items())
        elif self.target.marked:
            expected = Counter((i, text, sign) for sign, i, text in given)
        else:
            expected = Counter((i, text) for _, i, text in given)
        assert self.target.held() == expected


def refused(walk: Walk) -> bool:
    """Changes of a key table go nowhere without their kind, but into functions."""
    return walk.source.kind == "key" and not walk.target.marked and walk.target.kind != "function"


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
    if refused(walk):
        for step in ("first", "first", "other"):
            with pytest.raises(SinkChangesError):
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
    if "columns" not in walk.form and sink not in ("parquet", "function"):
        with pytest.raises(SinkSchemaError, match="more"):
            walk.run("wider")
        walk.check()
    walk.takes(lambda: walk.run("wider", "add_columns"))

    walk.scan().reset("earliest", "everything once more")
    again = len(source.changes)
    assert walk.run("first", "add_columns") == again, "a reset frees run keys"
    walk.taken += source.changes
    walk.check()
