"""The SQL sink: rows and plan in one transaction, names as they are."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from fluss_client.errors import ConfigError, MissingExtraError
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import SinkError, SinkPositionError, SinkSchemaError, SqlSink
from tests import forked
from tests.orchestrate.sinks.plans import SCHEMA, expected_ids, make_plan, read

TABLE = 'Orders "2024"; DROP TABLE x'


def found(url: str, column: str = "id") -> list[Any]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    quoted = engine.dialect.identifier_preparer.quote
    text = f"SELECT {quoted(column)} FROM {quoted(TABLE)} ORDER BY id"
    with engine.connect() as connection:
        return list(connection.execute(sa.text(text)).scalars())


def test_writes_once_and_keeps_the_position(sql_url: str) -> None:
    sink = SqlSink(sql_url, TABLE)
    first, second = make_plan((0, 0, 250)), make_plan((0, 250, 260), (1, 0, 5), sequence=2)
    assert sink.already_done(first) is None
    assert sink.write(first, read).rows == 250
    assert sink.write(second, read).rows == 15

    def fail(_: ScanPlan) -> pa.RecordBatchReader:
        raise AssertionError("nothing is left to read")

    assert sink.write(second, fail).rows == 15
    sink.write(first, fail)
    assert found(sql_url) == expected_ids(first, second)
    position = sink.position("job")
    assert position is not None
    assert position.offsets == {(None, 0): 260, (None, 1): 5}


def test_a_store_that_disagrees_is_an_error(sql_url: str) -> None:
    sink = SqlSink(sql_url, TABLE)
    sink.write(make_plan((0, 0, 10)), read)
    with pytest.raises(SinkPositionError):
        sink.write(make_plan((0, 20, 30)), read)
    sink.reset_position("job")
    sink.write(make_plan((0, 20, 30)), read)
    assert len(found(sql_url)) == 20


def test_an_older_sqlalchemy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other frameworks bring it: Airflow 3.0 allows no newer one."""
    engine = sa.create_engine("sqlite://")
    monkeypatch.setattr(sa, "__version__", "1.4.54")
    for source in ("sqlite://", engine):
        with pytest.raises(MissingExtraError, match=r"SQLAlchemy 2 instead of 1\.4\.54"):
            SqlSink(source, TABLE)


def test_a_failed_read_leaves_nothing(sql_url: str) -> None:
    sink = SqlSink(sql_url, TABLE)
    plan = make_plan((0, 0, 300))

    def dies(part: ScanPlan) -> pa.RecordBatchReader:
        reader = read(part)

        def some():  # type: ignore[no-untyped-def]
            yield reader.read_next_batch()
            raise OSError("the line broke")

        return pa.RecordBatchReader.from_batches(reader.schema, some())

    with pytest.raises(OSError, match="the line broke"):
        sink.write(plan, dies)
    assert found(sql_url) == []
    assert sink.position("job") is None
    sink.write(plan, read)
    assert found(sql_url) == expected_ids(plan)


def test_schema_policy(sql_url: str) -> None:
    wider = SCHEMA.append(pa.field("extra", pa.int64()))
    SqlSink(sql_url, TABLE).write(make_plan((0, 0, 3)), read)
    plan = make_plan((0, 3, 5))
    with pytest.raises(SinkSchemaError, match="extra"):
        SqlSink(sql_url, TABLE).write(plan, lambda p: read(p, wider))
    adding = SqlSink(sql_url, TABLE, schema_policy="add_columns")
    adding.write(plan, lambda p: read(p, wider))
    adding.write(make_plan((0, 5, 6)), read)
    assert found(sql_url, "extra") == [None, None, None, 6, 8, None]


def test_types_and_nested_values(sql_url: str) -> None:
    rows = pa.record_batch(
        {
            "id": [1],
            "bytes": [b"\x00\xff"],
            "tags": [["a", None]],
            "point": [{"x": 1, "raw": b"hi"}],
        }
    )
    SqlSink(sql_url, TABLE).write(
        make_plan((0, 0, 1)), lambda _: pa.RecordBatchReader.from_batches(rows.schema, [rows])
    )
    assert [bytes(value) for value in found(sql_url, "bytes")] == [b"\x00\xff"]
    assert [as_json(value) for value in found(sql_url, "tags")] == [["a", None]]
    assert [as_json(value) for value in found(sql_url, "point")] == [{"x": 1, "raw": "aGk="}]


def as_json(value: Any) -> Any:
    """What a JSON column holds: SQLite's gives its text, PostgreSQL's the value."""
    return json.loads(value) if isinstance(value, str) else value


def test_bad_arguments(sql_url: str) -> None:
    with pytest.raises(ConfigError, match="SQLAlchemy URL"):
        SqlSink("no url", TABLE)
    with pytest.raises(SinkError, match="no such table"):
        SqlSink(sql_url, TABLE, create=False).write(make_plan((0, 0, 1)), read)


def _race(url: str, plans: list[ScanPlan], barrier: Any) -> None:
    sink = SqlSink(url, TABLE)
    barrier.wait()
    for plan in plans:
        sink.write(plan, read)


@pytest.mark.timeout(300)
def test_processes_racing_on_the_same_plans(sql_url: str) -> None:
    plans = [make_plan((0, at * 10, at * 10 + 10), sequence=at) for at in range(6)]
    barrier = forked.context.Barrier(3)
    runs = [forked.start(_race, sql_url, plans, barrier) for _ in range(3)]
    for run in runs:
        run.join()
    assert [run.exitcode for run in runs] == [0, 0, 0]
    assert found(sql_url) == expected_ids(*plans)


KILLED = """
import os, signal, sys
from tests.orchestrate.sinks.plans import make_plan, read
from tests.orchestrate.sinks.test_sql import TABLE
from fluss_orchestrate.core.sinks import SqlSink
from fluss_orchestrate.core.sinks.sql_forms import append
stage, url = sys.argv[1:]
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
real = append._chunks
def chunks(reader):
    for at, chunk in enumerate(real(reader)):
        if stage == "within" and at == 2: die()
        yield chunk
append._chunks = chunks
SqlSink(url, TABLE).write(make_plan((0, 0, 300)), read)
die()
"""


@pytest.mark.parametrize("stage", ["within", "after"])
def test_killed(sql_url: str, stage: str) -> None:
    assert forked.run_program(KILLED, stage, sql_url) == -9
    sink = SqlSink(sql_url, TABLE)
    plan = make_plan((0, 0, 300))
    assert (sink.already_done(plan) is None) == (stage == "within")
    assert sink.write(plan, read).rows == 300
    assert found(sql_url) == expected_ids(plan)
