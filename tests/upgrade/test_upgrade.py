"""What an earlier version left behind opens and goes on: directories, checkpoints, plans, sinks.

`made_by_0_1.tar.gz` was written by `make_golden.py` with the code of 0.1.0 (commit 69c611a), before
checkpoints had generations and belonged to a sink. `wide_checkpoint.db.gz` was written by
`make_wide_checkpoint.py` with commit 8d817fc, before records had changes of positions, and
`wide_interval.db.gz` by `make_wide_interval.py` with commit 0961c97, before those of intervals had.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import sqlalchemy as sa

import fluss_client as fluss
from fluss_orchestrate import (
    FlussTableSink,
    IncrementalScan,
    IntervalScan,
    ParquetSink,
    SqlCheckpointStore,
    SqlSink,
    read_table,
    run_increment,
)
from fluss_orchestrate.core.errors import (
    CheckpointBindingError,
    CheckpointRetiredError,
    PositionUnknownError,
    RowsTakenError,
)
from fluss_orchestrate.core.job import run_interval
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.receipts import Receipt
from tests.upgrade import make_wide_checkpoint as wide
from tests.upgrade import make_wide_interval as interval
from tests.upgrade.make_golden import rows

GOLDEN = Path(__file__).parent / "made_by_0_1.tar.gz"


class Left:
    """What the earlier version left, opened with this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = {"bootstrap.servers": f"embedded:{folder}/fluss", "cluster.alias": "shop"}
        self.connection = fluss.FlussConnection.create(fluss.Config(config)).result()
        self.kept = json.loads((folder / "kept.json").read_text())

    def scan(self, name: str, **options: Any) -> IncrementalScan:
        return IncrementalScan(self.connection, "db.events", name, settle_ms=0, **options)

    def intervals(self, name: str, **options: Any) -> IntervalScan:
        return IntervalScan(self.connection, "db.events", name, settle_ms=0, **options)

    def files(self, name: str) -> ParquetSink:
        return ParquetSink(self.folder / name)

    def ids(self, name: str) -> list[int]:
        found: list[int] = ds.dataset(self.folder / name, format="parquet").to_table()["id"]
        return sorted(found.to_pylist())  # type: ignore[attr-defined]

    def append(self, first: int, last: int) -> None:
        table = self.connection.get_table(fluss.TablePath("db", "events")).result()
        writer = table.new_append().create_writer()
        writer.write_arrow(rows(first, last))
        writer.flush().result()


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Left]:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    opened = Left(tmp_path)
    yield opened
    opened.connection.close()


def test_a_directory_opens_and_takes_more(left: Left) -> None:
    left.append(15, 20)
    found = read_table(left.connection, "db.events").read_all()["id"].to_pylist()
    assert sorted(found) == list(range(20))
    keys = read_table(left.connection, "db.keyed").read_all()["id"].to_pylist()
    assert sorted(keys) == left.kept["keys"]


def test_a_cursor_goes_on_and_then_belongs_to_its_sink(left: Left) -> None:
    again = run_increment(left.scan("committed"), left.files("files"), "run-1")
    assert (again.rows, again.receipt.rows) == (0, 10)
    assert run_increment(left.scan("committed"), left.files("files"), "run-2").rows == 5
    assert left.ids("files") == list(range(15))
    with pytest.raises(CheckpointBindingError):
        run_increment(left.scan("committed"), left.files("elsewhere"), "run-3")
    first, _, last = left.kept["bounds"]
    with pytest.raises(RowsTakenError):
        run_interval(left.intervals("committed"), left.files("files"), "x", first, last)


def test_a_pending_plan_is_finished_under_its_own_id(left: Left) -> None:
    pending = ScanPlan.from_json(left.kept["pending"])
    done = run_increment(left.scan("pending"), left.files("pending"), "run-2")
    assert [receipt.plan_id for receipt in done.adopted] == [pending.plan_id]
    assert left.ids("pending") == list(range(15))
    with pytest.raises(CheckpointBindingError, match="columns"):
        run_increment(left.scan("pending", columns=["id"]), left.files("pending"), "run-3")


def test_a_reset_of_an_earlier_version_and_a_retired_checkpoint(left: Left) -> None:
    assert run_increment(left.scan("reset"), left.files("anew"), "run-2").rows == 15
    with pytest.raises(CheckpointRetiredError):
        left.scan("retired").plan("run-2")
    left.scan("retired").reset("current", "back in use")
    assert run_increment(left.scan("retired"), left.files("retired-files"), "run-2").rows == 5
    assert left.ids("retired-files") == list(range(15))


def test_a_sql_sink_that_was_ahead_of_its_checkpoint(left: Left) -> None:
    store = SqlCheckpointStore("sqlite:///checkpoints.db")
    sink = SqlSink("sqlite:///sink.db", "rows")
    done = run_increment(left.scan("sql", store=store), sink, "run-2")
    assert (done.rows, done.receipt.moved) == (5, 0)
    left.append(15, 18)
    assert run_increment(left.scan("sql", store=store), sink, "run-3").rows == 3
    left.scan("sql", store=store).reset("latest", "a new generation")
    left.append(18, 20)
    assert run_increment(left.scan("sql", store=store), sink, "run-4").rows == 2
    with sa.create_engine("sqlite:///sink.db").connect() as connection:
        found = connection.execute(sa.text("select id from rows order by id")).scalars().all()
    assert found == list(range(20))


def test_a_fluss_sink_goes_on(left: Left) -> None:
    sink = FlussTableSink(left.connection, "db.copy")
    assert run_increment(left.scan("into-fluss"), sink, "run-2").rows == 5
    found = read_table(left.connection, "db.copy").read_all()["id"].to_pylist()
    assert sorted(found) == [*range(15), 100]


def test_intervals_go_on_and_are_not_taken_again(left: Left) -> None:
    bounds, sink = left.kept["bounds"], left.files("backfill")
    again = run_interval(left.intervals("backfill"), sink, "run-1", bounds[0], bounds[1])
    assert (again.rows, again.receipt.rows) == (0, 10)
    pending = ScanPlan.from_json(left.kept["interval"])
    done = run_interval(left.intervals("backfill"), sink, "run-3", bounds[1], bounds[2])
    assert (done.rows, done.receipt.plan_id) == (5, pending.plan_id)
    with pytest.raises(RowsTakenError):
        run_interval(left.intervals("backfill"), sink, "all", bounds[0], bounds[2])
    with pytest.raises(RowsTakenError):
        run_increment(left.scan("backfill"), sink, "cursor")
    assert left.ids("backfill") == list(range(15))


def test_a_receipt_without_a_whole_position(left: Left) -> None:
    receipt = Receipt.from_json(left.kept["receipt"])
    assert (receipt.rows, receipt.moved, receipt.position) == (10, 10, None)
    found = read_table(left.connection, "db.events", as_of=receipt).read_all()["id"].to_pylist()
    assert sorted(found) == list(range(10)), "its ranges name every bucket"
    partial = Receipt.from_json({**left.kept["receipt"], "ranges": receipt.to_json()["ranges"][:1]})
    with pytest.raises(PositionUnknownError):
        read_table(left.connection, "db.events", as_of=partial)


def test_changes_of_a_key_table_go_on(left: Left) -> None:
    scan = IncrementalScan(
        left.connection, "db.keyed", "keyed", settle_ms=0, metadata_columns=["_change_type"]
    )
    assert run_increment(scan, left.files("changes"), "run-2").rows == 0


def test_a_large_checkpoint_goes_on_with_changes(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints.db"
    file.write_bytes(gzip.decompress((GOLDEN.parent / "wide_checkpoint.db.gz").read_bytes()))
    store = SqlCheckpointStore(f"sqlite:///{file}")
    before = list(store.history(wide.NAME))[::-1]
    assert [event.state.position for event in before] == [
        *(wide.position(1, commits) for commits in (0, 1, 1, 2)),
        *(wide.position(9, commits) for commits in (0, 0, 1, 1)),
    ]
    pending = before[-1].state.pending
    assert pending is not None
    wide.commit(store, pending)
    for number in range(4, 9):
        wide.commit(store, wide.plan(store, f"run-{number}"))
    again = SqlCheckpointStore(f"sqlite:///{file}")
    head = again.require(wide.NAME)
    assert head.state.position == wide.position(9, 7)
    assert [event.to_json() for event in again.history(wide.NAME)][-8:] == [
        event.to_json() for event in before[::-1]
    ]
    assert head.layers[0].sequence == 7, "the last record of the earlier release"
    assert head.layers[-1].whole is None
    store.close()
    again.close()


def test_intervals_of_a_large_table_go_on_with_changes(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints.db"
    file.write_bytes(gzip.decompress((GOLDEN.parent / "wide_interval.db.gz").read_bytes()))
    store = SqlCheckpointStore(f"sqlite:///{file}")
    for number in range(2):
        assert store.require(interval.boundary(number)).state.position == interval.position(number)
    pending = store.require(interval.plan(1).name).state.pending
    assert pending is not None
    for number in range(1, 5):
        earlier = store.require(interval.boundary(number - 1))
        if number > 1:
            place = interval.position(number)
            store.set_first(interval.boundary(number), place, {"at_ms": number}, earlier)
            begin = interval.position(number - 1)
            pending = store.try_plan(None, interval.plan(number), begin, upon=earlier)
            assert pending is not None
        done = Receipt("increment", interval.TABLE, pending.run_key, pending.ranges, 10)
        store.commit(pending, replace(done, plan_id=pending.plan_id), retire=True)
    again = SqlCheckpointStore(f"sqlite:///{file}")
    for number in range(1, 5):
        end = interval.position(number)
        assert again.require(interval.boundary(number)).state.position == end
        head = again.require(interval.plan(number).name)
        assert head.state.retired
        assert head.state.position is not None
        assert head.state.position.offsets == end.offsets
    assert head.layers[0].key == (interval.boundary(1), 0), "a record of the earlier release"
    store.close()
    again.close()
