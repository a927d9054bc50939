"""A mirror in SQL equals its table at the offsets of every committed plan."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from fluss_client import FlussConnection
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.job import JobResult
from fluss_orchestrate.core.mirror.table import mirror_scan, mirror_table
from fluss_orchestrate.core.sinks import SqlSink
from tests.contract.tables import Tables
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.mirror_sql.keyed_model import KeyedModel, sorted_rows

SEED = 20261118
PROGRAMS, PROGRAMS_LONG = 5, 75
"""Per database and kind of source: 20 and 300 in all."""
STEPS = 14


class Mirror:
    """A mirror of a model's table in a SQL database."""

    def __init__(self, model: KeyedModel, url: str, connection: FlussConnection) -> None:
        self.model = model
        self.url = url
        self.sink = SqlSink(url, "Copy", schema_policy="add_columns", form="mirror")
        self.store = CheckpointStore(MemoryEventLog())
        self.connection = connection
        self.runs = 0

    def run(self, **options: Any) -> JobResult:
        self.runs += 1
        done = mirror_table(
            self.connection,
            self.model.path,
            self.sink,
            options.pop("run_key", f"run-{self.runs}"),
            checkpoint="mirror",
            store=self.store,
            scan_options={"settle_ms": 0},
            **options,
        )
        self.check()
        return done

    def reset(self) -> None:
        scan = mirror_scan(self.connection, self.model.path, "mirror", store=self.store)
        scan.reset("start", "a test", abandon_pending=True)

    def check(self) -> None:
        """The rows are those of the model at the position, for SQL and when they are read back."""
        position = self.sink.position("mirror")
        assert position is not None
        expected = self.model.expected(position)
        schema = self.model.table.arrow_schema
        with self.sink.read_mirror("mirror", self._held(schema)) as found:
            assert found is not None
            assert found.position == position
            rows = found.rows.read_all()
        lacking = [name for name in schema.names if name not in rows.schema.names]
        given = [{**row, **dict.fromkeys(lacking)} for row in rows.to_pylist()]
        assert sorted_rows([tuple(row[n] for n in schema.names) for row in given]) == expected

    def _held(self, schema: pa.Schema) -> pa.Schema:
        """The columns that a run has brought so far."""
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        there = {column["name"] for column in sa.inspect(engine).get_columns("Copy")}
        return pa.schema([field for field in schema if field.name in there])


def run_program(
    seed: int, tables: Tables, url: str, connection: FlussConnection, steps: int
) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    model = KeyedModel(tables, rng, partitioned=rng.random() < 0.5, buckets=rng.randrange(1, 4))
    mirror = Mirror(model, url, connection)
    for _ in range(rng.randrange(4)):
        model.step()
    mirror.run()
    for _ in range(steps):
        kind = rng.random()
        if kind < 0.55:
            model.step()
        elif kind < 0.9:
            mirror.run(max_offsets=rng.choice([None, rng.randrange(1, 12)]))
        elif kind < 0.95:
            mirror.run(run_key=f"run-{rng.randrange(1, mirror.runs + 1)}")
        else:
            mirror.reset()
            mirror.run()
    mirror.run()
    current = {key: row for rows in model.rows.values() for key, row in rows.items()}
    position = mirror.sink.position("mirror")
    assert position is not None
    assert len(model.expected(position)) <= len(current)


@pytest.mark.timeout(3600)
def test_random_programs(
    tables: Tables,
    source: FlussConnection,
    fluss_kind: str,
    sql_url: str,
    long_form: bool,
    tmp_path: Any,
) -> None:
    count = PROGRAMS_LONG if long_form else PROGRAMS
    for number in range(count):
        url = sql_url
        if number:
            url = _another(sql_url, tmp_path, number)
        run_program(SEED + number, tables, url, source, STEPS)


def _another(url: str, folder: Any, number: int) -> str:
    from tests.fix_postgres import new_database

    if url.startswith("sqlite"):
        return f"sqlite:///{folder}/program{number}.db"
    return new_database(url)
