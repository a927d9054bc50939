"""`load_rows`: the same rows under the same id are there once; other rows are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client import FlussConnection
from fluss_client.errors import PartitionNotExistError, RowError
from fluss_orchestrate import load_rows
from fluss_orchestrate.core.loading import (
    RowsDifferError,
    SourceError,
    load_is_known,
    open_rows,
)
from fluss_orchestrate.core.loading.units import digest_of
from tests import forked
from tests.orchestrate.sinks.plans import SCHEMA
from tests.orchestrate.sinks.targets import KEYED, LAYOUTS, log_rows, make_target, values

pytestmark = pytest.mark.usefixtures("small_units")


def rows(count: int, first: int = 0) -> pa.Table:
    """Rows of the sinks' schema."""
    columns = {
        "id": range(first, first + count),
        "region": [f"r{i % 3}" for i in range(count)],
    }
    made = {
        field.name: pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in SCHEMA
    }
    return pa.table(made, SCHEMA)


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_a_load_leaves_each_row_once_and_says_where(
    sink_connection: FlussConnection, sink_database: str, layout: str
) -> None:
    path = make_target(sink_connection, sink_database, layout)
    seen: list[tuple[int, int]] = []
    first = load_rows(
        sink_connection, path, rows(400), "one", progress=lambda r, b: seen.append((r, b))
    )
    again = load_rows(sink_connection, path, rows(400).combine_chunks().to_reader(50), "one")
    other = load_rows(sink_connection, path, rows(30, first=400), "two")
    found = sorted(log_rows(sink_connection, path).column("id").to_pylist())
    assert found == list(range(430))
    assert (first.rows, again.rows, other.rows) == (400, 400, 30)
    assert first.kind == "append"
    assert again.details["was_done_before"]
    assert not first.details["was_done_before"]
    assert first.ranges == again.ranges
    assert sum(r.count for r in first.ranges) == 400
    assert seen[-1] == (400, first.bytes)
    assert seen == sorted(seen)


def test_other_rows_under_the_same_id_are_refused(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = make_target(sink_connection, sink_database)
    load_rows(sink_connection, path, rows(100), "id")
    with pytest.raises(RowsDifferError, match="99 now"):
        load_rows(sink_connection, path, rows(99), "id")
    with pytest.raises(RowsDifferError, match="not in content") as raised:
        load_rows(sink_connection, path, rows(100, first=1), "id")
    assert raised.value.load_id == "id"
    assert log_rows(sink_connection, path).num_rows == 100


@pytest.mark.parametrize("counts", [(0, 40), (40, 0), (105, 210), (210, 105)])
def test_more_or_fewer_rows_of_a_finished_load_are_refused(
    sink_connection: FlussConnection, sink_database: str, counts: tuple[int, int]
) -> None:
    """Also when they end where a block of units ends, so that every block seems to fit."""
    path = make_target(sink_connection, sink_database)
    assert not load_is_known(sink_connection, path, "one")
    load_rows(sink_connection, path, rows(counts[0]), "one")
    assert load_is_known(sink_connection, path, "one")
    with pytest.raises(RowsDifferError, match=f"{counts[0]} rows then"):
        load_rows(sink_connection, path, rows(counts[1]), "one")
    assert len(log_rows(sink_connection, path)) == counts[0]


def test_fewer_rows_of_a_load_that_broke_off_are_refused(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = make_target(sink_connection, sink_database)

    def breaks_off() -> Iterator[pa.RecordBatch]:
        yield from rows(210).to_batches()
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        load_rows(
            sink_connection,
            path,
            pa.RecordBatchReader.from_batches(SCHEMA, breaks_off()),
            "one",
        )
    with pytest.raises(RowsDifferError, match="more rows then than now"):
        load_rows(sink_connection, path, rows(105), "one")
    load_rows(sink_connection, path, rows(210), "one")
    assert len(log_rows(sink_connection, path)) == 210


def test_a_load_that_broke_off_goes_on(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = make_target(sink_connection, sink_database, "keyed")
    whole = rows(400)

    def breaks() -> Iterator[pa.RecordBatch]:
        yield from whole.slice(0, 250).to_batches()
        raise OSError("the file is gone")

    broken = pa.RecordBatchReader.from_batches(whole.schema, breaks())
    with pytest.raises(OSError, match="the file is gone"):
        load_rows(sink_connection, path, broken, "id")
    assert 0 < log_rows(sink_connection, path).num_rows < 400
    with pytest.raises(RowsDifferError):
        load_rows(sink_connection, path, rows(400, first=7), "id")
    assert load_rows(sink_connection, path, whole, "id").rows == 400
    assert sorted(log_rows(sink_connection, path).column("id").to_pylist()) == list(range(400))


KILLED = """
import os, signal, sys
from fluss_client import Config, FlussConnection
from fluss_orchestrate import load_rows
from fluss_orchestrate.core.loading import sending, units
from tests.orchestrate.sinks.test_loading import rows
stage, address, table = sys.argv[1:]
units.BATCH_ROWS_MAX, sending.BLOCK_UNITS = 7, 3
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
real = sending.PinnedLoad._send
sent = 0
async def send(self, placed, *rest):
    global sent
    await real(self, placed, *rest)
    sent += 1
    if str(sent) == stage: die()
sending.PinnedLoad._send = send
async def finish(self, *_): die()
if stage == "before-done": sending.Pins.finish = finish
with FlussConnection.create(Config({"bootstrap.servers": address})).result() as connection:
    load_rows(connection, table, rows(400), "id")
    die()
"""


@pytest.mark.parametrize("stage", ["1", "8", "before-done", "after"])
def test_a_load_that_was_killed_goes_on(
    sink_connection: FlussConnection, sink_database: str, fluss_address: str, stage: str
) -> None:
    path = make_target(sink_connection, sink_database)
    assert forked.run_program(KILLED, stage, fluss_address, str(path)) == -9
    receipt = load_rows(sink_connection, path, rows(400), "id")
    assert receipt.details["was_done_before"] == (stage == "after")
    assert sorted(log_rows(sink_connection, path).column("id").to_pylist()) == list(range(400))


def test_the_last_of_equal_keys_wins_and_deletes_delete(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = make_target(sink_connection, sink_database, schema=KEYED, primary_keys=["id"])
    many = pa.table({"id": [1, 2, 3] * 100, "value": [f"v{i}" for i in range(300)]})
    receipt = load_rows(sink_connection, path, many, "first")
    assert receipt.kind == "upsert"
    assert receipt.rows == 300
    assert values(sink_connection, path, [1, 2, 3]) == ["v297", "v298", "v299"]
    changes = pa.table({"id": [1, 2], "value": ["x", "y"], "_change_type": ["-D", "+U"]})
    load_rows(sink_connection, path, changes, "second")
    load_rows(sink_connection, path, many, "first")  # late: it must not put old values back
    assert values(sink_connection, path, [1, 2, 3]) == [None, "y", "v299"]


def test_partitions_are_created_only_when_asked_for(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = make_target(sink_connection, sink_database, "partitioned")
    new = rows(20).set_column(1, SCHEMA.field("region"), [["new"] * 20])
    assert new.schema.names[1] == "region"
    with pytest.raises(PartitionNotExistError):
        load_rows(sink_connection, path, new, "one")
    receipt = load_rows(sink_connection, path, new, "two", create_partitions=True)
    assert {r.partition for r in receipt.ranges} == {"new"}
    assert log_rows(sink_connection, path).num_rows == 20


def test_frames_and_what_holds_no_rows(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = make_target(sink_connection, sink_database, schema=KEYED)
    frame = pd.DataFrame({"id": [1, 2], "value": ["a", "b"]})
    load_rows(sink_connection, path, frame, "frame")
    load_rows(sink_connection, path, KEYED.empty_table(), "nothing")
    load_rows(sink_connection, path, KEYED.empty_table(), "nothing")
    assert log_rows(sink_connection, path).column("value").to_pylist() == ["a", "b"]
    with pytest.raises(RowError, match="not list"):
        load_rows(sink_connection, path, [1], "list")


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_files_of_a_folder_in_order(tmp_path: Path, format: str) -> None:  # noqa: A002
    for number in (2, 0, 1):
        part = pa.table({"id": [number * 10, number * 10 + 1], "text": ["a", None]})
        file = tmp_path / f"day={number}" / f"part.{format}"
        file.parent.mkdir()
        if format == "parquet":
            pq.write_table(part, file)
        else:
            pyarrow.csv.write_csv(part, file)
    (tmp_path / "_SUCCESS").touch()
    assert open_rows(tmp_path).read_all()["id"].to_pylist() == [0, 1, 10, 11, 20, 21]
    assert open_rows(tmp_path, columns=["text"]).schema.names == ["text"]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        open_rows(tmp_path / "absent.parquet")
    with pytest.raises(SourceError, match="no file that ends in"):
        open_rows(tmp_path)
    (tmp_path / "bad.parquet").write_text("this is no Parquet")
    with pytest.raises(SourceError, match="cannot be read as parquet"):
        open_rows(tmp_path)
    (tmp_path / "other.csv").write_text("a,b")
    with pytest.raises(SourceError, match="csv, parquet"):
        open_rows(tmp_path)


COLUMN = st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=20)


@given(COLUMN, COLUMN, st.integers(0, 5))
def test_a_digest_tells_rows_apart_and_nothing_else(
    left: list[int | None], right: list[int | None], padding: int
) -> None:
    def digest(column: list[Any], before: int = 0) -> str:
        texts = [None if v is None else str(v) for v in column]
        wide = pa.record_batch(
            {
                "n": pa.array([9] * before + column, pa.int64()),
                "t": pa.array(["x"] * before + texts, pa.string()),
            }
        )
        return digest_of(wide.slice(before), None)

    assert (digest(left) == digest(right)) == (left == right)
    assert digest(left, padding) == digest(left)
