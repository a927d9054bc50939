"""A plan is committed when its rows were taken: read to the end, counted elsewhere, or skipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import FlussTable
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.errors import IncompleteReadError
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.incremental.run import ScanRun
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.sinks import FunctionSink, ParquetSink
from tests.orchestrate.incremental.events import EventTables, rows

MakeScan = Callable[..., IncrementalScan]


@pytest.fixture
def table(tables: EventTables) -> FlussTable:
    made = tables.events()
    tables.append(made, rows(range(20)))
    return made


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda run: None, id="nothing"),
        pytest.param(lambda run: run.schema, id="schema alone"),
        pytest.param(lambda run: run.reader(), id="a reader that is not pulled"),
        pytest.param(lambda run: iter(run), id="an iterator that is not advanced"),
        pytest.param(lambda run: run.reader().read_next_batch(), id="one batch"),
    ],
)
def test_a_run_that_did_not_read_its_rows_is_not_committed(
    table: FlussTable, make_scan: MakeScan, store: CheckpointStore, use: Callable[[ScanRun], object]
) -> None:
    scan = make_scan(table)
    with pytest.raises(IncompleteReadError, match="skip"), scan.run("one") as run:
        use(run)
    assert run.receipt is None
    assert store.require(scan.name).state.pending == run.plan
    with scan.run("one") as run:
        assert run.to_arrow().num_rows == 20


def test_what_another_attempt_has_read_does_not_count(
    table: FlussTable, make_scan: MakeScan
) -> None:
    scan = make_scan(table)
    with pytest.raises(ZeroDivisionError), scan.run("one") as run:
        divmod(run.to_arrow().num_rows, 0)
    with pytest.raises(IncompleteReadError), scan.run("one"):
        pass
    plan = scan.plan("one")
    with pytest.raises(IncompleteReadError):
        scan.commit(plan)


def test_two_readers_count_once(table: FlussTable, make_scan: MakeScan) -> None:
    with make_scan(table).run("one") as run:
        first, second = run.reader(), run.reader()
        assert first.read_all().num_rows == second.read_all().num_rows == 20
    assert run.receipt is not None
    assert (run.receipt.rows, run.receipt.moved) == (20, 20)


def test_rows_are_skipped_only_with_a_word(table: FlussTable, make_scan: MakeScan) -> None:
    scan = make_scan(table)
    with pytest.raises(ConfigError, match="say why"):
        scan.run("one").skip(" ")
    with scan.run("one") as run:
        run.skip("they were tests")
    assert run.receipt is not None
    assert (run.receipt.rows, run.receipt.details["reason"]) == (0, "they were tests")
    assert Receipt.from_json(run.receipt.to_json()) == run.receipt
    assert scan.plan("two").is_empty


def test_rows_that_were_read_elsewhere_are_counted_by_the_caller(
    table: FlussTable, make_scan: MakeScan
) -> None:
    with make_scan(table).run("one") as run:
        run.read_elsewhere(rows=20, bytes=400)
    assert run.receipt is not None
    assert (run.receipt.rows, run.receipt.bytes) == (20, 400)


def test_parts_of_a_plan_make_it_whole(table: FlussTable, make_scan: MakeScan) -> None:
    scan = make_scan(table)
    plan = scan.plan("one")
    first, *rest = plan.split(3)
    assert rest
    scan.read(first).read_all()
    with pytest.raises(IncompleteReadError):
        scan.commit(plan)
    for part in rest:
        scan.read(part).read_all()
    assert scan.commit(plan).rows == 20


def test_a_run_key_that_was_committed_writes_nothing_again(
    table: FlussTable, tables: EventTables, make_scan: MakeScan, tmp_path: Path
) -> None:
    given: list[int] = []

    def take(reader: pa.RecordBatchReader) -> None:
        given.append(reader.read_all().num_rows)

    scan = make_scan(table)
    assert run_increment(scan, FunctionSink(take), "constant").rows == 20
    tables.append(table, rows(range(20, 30)))
    again = run_increment(make_scan(table), FunctionSink(take), "constant")
    assert (again.rows, again.receipt.rows, again.receipt.moved) == (0, 20, 0)
    assert again.receipt.details["already_committed"]
    assert given == [20]
    repeat = make_scan(table, on_committed="again")
    assert run_increment(repeat, FunctionSink(take), "constant").rows == 0
    assert given == [20, 20]

    files = make_scan(table, name=f"{scan.name}-files")
    sink = ParquetSink(tmp_path)
    assert run_increment(files, sink, "constant").rows == 30
    for path in tmp_path.iterdir():
        path.unlink()
    assert run_increment(files, sink, "constant").rows == 0
    assert list(tmp_path.iterdir()) == []


def test_a_block_whose_plan_was_committed_gets_no_rows(
    table: FlussTable, make_scan: MakeScan
) -> None:
    with make_scan(table).run("one") as run:
        run.to_arrow()
    with make_scan(table).run("one") as run:
        assert run.already_committed
        assert run.to_arrow().num_rows == 0
    assert run.receipt is not None
    assert (run.receipt.rows, run.receipt.moved) == (20, 0)
    with make_scan(table, on_committed="again").run("one") as run:
        assert run.to_arrow().num_rows == 20
    assert run.receipt is not None
    assert run.receipt.moved == 0


def test_a_receipt_tells_rows_that_were_there_from_rows_that_moved(
    table: FlussTable, make_scan: MakeScan, tmp_path: Path
) -> None:
    scan, sink = make_scan(table), ParquetSink(tmp_path)
    plan = scan.plan("one", sink=sink)
    sink.write(plan, scan.read)
    missing = next(iter(sorted(tmp_path.iterdir())))
    lost = pq.read_metadata(missing).num_rows
    missing.unlink()
    done = run_increment(make_scan(table), sink, "one")
    assert (done.rows, done.receipt.rows, done.receipt.moved) == (20, 20, lost)
    assert done.receipt.to_json()["rows_moved"] == lost
