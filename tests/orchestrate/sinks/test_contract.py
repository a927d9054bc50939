"""Contracts: rows that violate a rule stop the plan, or go into quarantine, each once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
from fluss_orchestrate.core.job import run_increment, run_interval
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.mirror.verification import verify_mirror
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import FunctionSink, ParquetSink, SqlSink
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkForm, SinkResult
from fluss_orchestrate.core.sinks.contract import ColumnRule, ContractSink, ContractViolatedError
from fluss_orchestrate.core.sinks.errors import (
    ContractChangedError,
    SinkFormError,
    SinkSchemaError,
)
from tests.orchestrate.mirror.memory_mirror import MemoryMirror
from tests.waiting import moment_between

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("amount", pa.float64()),
        pa.field("region", pa.string()),
    ]
)
RULES = ["amount >= 0", ColumnRule("region", "STRING", not_null=True)]


@pytest.fixture
def database_file(tmp_path: Path) -> Path:
    return tmp_path / "target.db"


@pytest.fixture
def query(database_file: Path) -> Iterator[Any]:
    with sqlite3.connect(database_file) as connection:
        yield lambda text: connection.execute(text).fetchall()


def make(
    connection: FlussConnection, database: str, name: str, *, keyed: bool = False, buckets: int = 2
) -> TablePath:
    path = TablePath(database, name)
    made = TableDescriptor(
        Schema(COLUMNS, primary_keys=["id"] if keyed else None), bucket_count=buckets
    )
    connection.get_admin().result().create_table(path, made).result()
    return path


def append(connection: FlussConnection, path: TablePath, rows: list[dict[str, Any]]) -> None:
    with connection.get_table(path).result().new_append().create_writer() as writer:
        for row in rows:
            writer.append(row)


def sink_of(file: Path, table: str) -> SqlSink:
    return SqlSink(f"sqlite:///{file}", table)


def test_a_violation_stops_the_plan_before_anything_is_written(
    sink_connection: FlussConnection, sink_database: str, database_file: Path
) -> None:
    path = make(sink_connection, sink_database, "orders", buckets=1)
    append(sink_connection, path, [{"id": n, "amount": 1.0, "region": "eu"} for n in range(50)])
    append(sink_connection, path, [{"id": 50, "amount": -1.0, "region": "eu"}])
    append(sink_connection, path, [{"id": 51, "amount": None, "region": "eu"}])
    sink = ContractSink(sink_of(database_file, "orders"), RULES)
    scan = IncrementalScan(sink_connection, path, f"{sink_database} fail")
    with pytest.raises(ContractViolatedError, match="bucket 0 offset 50; bucket 0 offset 51") as e:
        run_increment(scan, sink, "one")
    assert (e.value.rule, e.value.rows) == ("amount >= 0", 2)
    assert e.value.places == ((None, 0, 50), (None, 0, 51))
    with sqlite3.connect(database_file) as opened:
        assert opened.execute("select name from sqlite_master").fetchall() == []
    # The rule is mended: the same plan is written.
    mended = ContractSink(sink_of(database_file, "orders"), ["amount is null or amount > -2"])
    assert run_increment(scan, mended, "one").rows == 52


def test_quarantined_rows_are_there_once_and_the_rest_flows(
    sink_connection: FlussConnection,
    sink_database: str,
    database_file: Path,
    query: Any,
) -> None:
    path = make(sink_connection, sink_database, "orders")
    sink = ContractSink(
        sink_of(database_file, "orders"),
        RULES,
        "quarantine",
        sink_of(database_file, "quarantine"),
    )
    scan = IncrementalScan(
        sink_connection, path, f"{sink_database} quarantine", metadata_columns=["_timestamp"]
    )
    for turn in range(3):
        append(
            sink_connection,
            path,
            [
                {"id": 100 * turn + n, "amount": float(n - 2), "region": "eu" if n % 5 else None}
                for n in range(20)
            ],
        )
        killed = _Killed(sink, dies=turn == 1)
        if turn == 1:  # after the quarantine has the rows, and before the sink has
            with pytest.raises(RuntimeError, match="killed"):
                run_increment(scan, killed, f"run {turn}")
            killed.dies = False
        result = run_increment(scan, killed, f"run {turn}")
        assert result.receipt.details["sink"]["quarantined"] == 5
        assert result.receipt.rows == 15
    assert query("select count(*), count(distinct id) from orders") == [(45, 45)]
    assert query("select count(*), count(distinct id) from quarantine") == [(15, 15)]
    names = [row[1] for row in query("pragma table_info(orders)")]
    assert names == ["id", "amount", "region", "_timestamp"]
    reasons = dict(query("select _reason, count(*) from quarantine group by 1"))
    assert reasons == {"amount >= 0": 6, "region STRING not null": 9}
    places = query("select _plan_id, _bucket, _offset from quarantine")
    assert len(set(places)) == 15
    assert len({plan for plan, _, _ in places}) == 3


@pytest.mark.parametrize("kind", ["sql", "parquet"])
def test_a_pending_plan_keeps_its_contract(
    sink_connection: FlussConnection, sink_database: str, tmp_path: Path, kind: str
) -> None:
    """With other rules, rows would be in the quarantine and in the sink, or in none of them."""
    path = make(sink_connection, sink_database, "orders")
    append(sink_connection, path, [{"id": n, "amount": float(n), "region": "eu"} for n in range(9)])

    def place(name: str) -> SqlSink | ParquetSink:
        return sink_of(tmp_path / "s.db", name) if kind == "sql" else ParquetSink(tmp_path / name)

    def sink(rule: str, quarantine: str | None = "bad") -> ContractSink:
        if quarantine is None:
            return ContractSink(place("good"), [rule])
        return ContractSink(place("good"), [rule], "quarantine", place(quarantine))

    scan = IncrementalScan(sink_connection, path, f"{sink_database} {kind}")
    # A contract that fails writes nothing, so it may be changed, or a quarantine added.
    with pytest.raises(ContractViolatedError):
        run_increment(scan, sink("amount < 5", None), "one")
    with pytest.raises(ContractViolatedError):
        run_increment(scan, sink("amount < 6", None), "one")
    scan.store.abandon(scan.name)
    with pytest.raises(ContractViolatedError):
        run_increment(scan, sink("amount < 7", None), "one")
    for other in (sink("amount < 5"), sink("amount < 8")):
        with pytest.raises(ContractChangedError, match="begun with other rules"):
            run_increment(scan, other, "one")
    scan.store.abandon(scan.name)
    dies = sink("amount < 7")
    dies._sink = _Dead(dies.identity)  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="killed"):
        run_increment(scan, dies, "one")
    bare = place("good")
    for other in (sink("amount < 5"), sink("amount < 7", "elsewhere"), sink("id > 0", None), bare):
        for run_key in ("one", "another"):
            with pytest.raises(ContractChangedError):
                run_increment(scan, other, run_key)
    done = run_increment(scan, sink("amount < 7"), "one")
    assert (done.rows, done.receipt.details["sink"]["quarantined"]) == (7, 2)
    # The next plan may have another contract.
    append(sink_connection, path, [{"id": n, "amount": float(n), "region": "eu"} for n in range(9)])
    assert run_increment(scan, sink("amount < 5"), "two").rows == 5


def test_an_interval_keeps_its_contract(
    sink_connection: FlussConnection, sink_database: str, tmp_path: Path
) -> None:
    begin = moment_between()
    path = make(sink_connection, sink_database, "orders")
    append(sink_connection, path, [{"id": n, "amount": 1.0, "region": "eu"} for n in range(9)])
    end = moment_between()
    scan = IntervalScan(sink_connection, path, f"{sink_database} hours", settle_ms=0)

    def sink(rule: str) -> ContractSink:
        good, bad = (ParquetSink(tmp_path / name) for name in ("good", "bad"))
        return ContractSink(good, [rule], "quarantine", bad)

    dies = sink("id < 5")
    dies._sink = _Dead(dies.identity)  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="killed"):
        run_interval(scan, dies, "one", begin, end)
    with pytest.raises(ContractChangedError):
        run_interval(scan, sink("id < 6"), "two", begin, end)
    assert run_interval(scan, sink("id < 5"), "three", begin, end).rows == 5


def test_the_quarantine_is_another_place(tmp_path: Path) -> None:
    """The sink would be taken for done, because its quarantine holds the plan."""
    for make_sink in (
        lambda: ParquetSink(tmp_path / "rows"),
        lambda: sink_of(tmp_path / "s.db", "rows"),
    ):
        with pytest.raises(ConfigError, match="the quarantine is the sink itself"):
            ContractSink(make_sink(), RULES, "quarantine", make_sink())
    outer, inner = (ParquetSink(tmp_path / name) for name in ("good", "bad"))
    both = ContractSink(outer, ["amount < 5"], "quarantine", inner)
    with pytest.raises(ConfigError, match="bad"):
        ContractSink(both, ["amount < 9"], "quarantine", ParquetSink(tmp_path / "bad"))
    nested = ContractSink(both, ["amount < 9"], "quarantine", ParquetSink(tmp_path / "worse"))
    assert nested.contract["quarantine"] == f"{inner.identity}, parquet:local:{tmp_path / 'worse'}"
    assert nested.contract["rules"] != both.contract["rules"]
    functions = [FunctionSink(lambda reader: reader.read_all()) for _ in range(2)]
    ContractSink(functions[0], RULES, "quarantine", functions[1])


class _Killed:
    """Dies after the quarantine was written."""

    def __init__(self, sink: ContractSink, *, dies: bool) -> None:
        self._sink = sink
        self.dies = dies
        self.identity, self.form, self.exactly_once = sink.identity, sink.form, sink.exactly_once

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        if not self.dies:
            return self._sink.write(plan, read)
        inner = self._sink._sink
        try:
            self._sink._sink = _Dead()  # type: ignore[assignment]
            return self._sink.write(plan, read)
        finally:
            self._sink._sink = inner


class _Dead:
    form = SinkForm.APPEND

    def __init__(self, identity: str = "sql:orders") -> None:
        self.identity = identity

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        raise RuntimeError("killed")


def test_a_mirror_keeps_the_last_good_row(
    sink_connection: FlussConnection, sink_database: str, database_file: Path, query: Any
) -> None:
    path = make(sink_connection, sink_database, "accounts", keyed=True)
    mirror = MemoryMirror(sink_database)
    sink = ContractSink(mirror, ["amount >= 0"], "quarantine", sink_of(database_file, "quarantine"))

    def changed(*rows: dict[str, Any], deletes: tuple[int, ...] = ()) -> dict[int, float]:
        with sink_connection.get_table(path).result().new_upsert().create_writer() as writer:
            for row in rows:
                writer.upsert({"region": "eu", **row})
            for key in deletes:
                writer.delete({"id": key})
        name = f"{sink_database} mirror"
        mirror_table(sink_connection, path, sink, f"run {len(runs)}", checkpoint=name)
        runs.append(rows)
        assert mirror.rows is not None
        return {row["id"]: row["amount"] for row in mirror.rows.to_pylist()}

    runs: list[Any] = []
    assert changed({"id": 1, "amount": 1.0}, {"id": 2, "amount": 2.0}) == {1: 1.0, 2: 2.0}
    assert changed({"id": 1, "amount": -1.0}, {"id": 3, "amount": -3.0}) == {1: 1.0, 2: 2.0}
    found = verify_mirror(sink_connection, path, sink, f"{sink_database} mirror")
    assert sorted((d.kind, d.key["id"]) for d in found.differences) == [
        ("missing", 3),
        ("values", 1),
    ]
    assert changed({"id": 3, "amount": 3.0}, deletes=(1,)) == {2: 2.0, 3: 3.0}
    assert verify_mirror(sink_connection, path, sink, f"{sink_database} mirror").equal
    rows = query("select id, amount, _change_type, _reason from quarantine order by id")
    assert rows == [(1, -1.0, "+U", "amount >= 0"), (3, -3.0, "+I", "amount >= 0")]


def test_rules_that_cannot_hold_are_refused(
    sink_connection: FlussConnection, sink_database: str, database_file: Path
) -> None:
    target = sink_of(database_file, "orders")
    with pytest.raises(ConfigError, match="at least one"):
        ContractSink(target, [])
    with pytest.raises(ConfigError, match="belong together"):
        ContractSink(target, RULES, "quarantine")
    with pytest.raises(ConfigError, match="is expected"):
        ContractSink(target, ["amount >"])
    with pytest.raises(ConfigError, match="no rule"):
        ContractSink(target, [{"colum": "amount"}])
    with pytest.raises(SinkFormError, match="quarantine"):
        ContractSink(target, RULES, "quarantine", MemoryMirror())
    path = make(sink_connection, sink_database, "orders", buckets=1)
    append(sink_connection, path, [{"id": 1, "amount": 1.0, "region": "eu"}])
    for rule, message in (
        ({"column": "price"}, "price"),
        ({"column": "amount", "type": "INT"}, "double"),
    ):
        scan = IncrementalScan(sink_connection, path, f"{sink_database} refused")
        with pytest.raises(SinkSchemaError, match=message):
            run_increment(scan, ContractSink(target, [rule]), "one")
