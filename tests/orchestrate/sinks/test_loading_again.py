"""Loads that are called again: after columns were added, with a used reader, without an id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError, PartitionNotExistError, RowError
from fluss_orchestrate import load_rows
from fluss_orchestrate.core.loading import (
    LoadError,
    RowsDifferError,
    RowsUsedError,
    load_is_known,
)
from tests.orchestrate.sinks.plans import SCHEMA
from tests.orchestrate.sinks.targets import KEYED, log_rows, make_target, values
from tests.orchestrate.sinks.test_loading import rows

pytestmark = pytest.mark.usefixtures("small_units")


def broken_off(table: pa.Table, at: int) -> pa.RecordBatchReader:
    """A reader that fails after some rows."""

    def some() -> Iterator[pa.RecordBatch]:
        yield from table.slice(0, at).to_batches()
        raise OSError("the file is gone")

    return pa.RecordBatchReader.from_batches(table.schema, some())


def add_column(connection: FlussConnection, path: TablePath, name: str) -> None:
    """ADD COLUMN."""
    admin = connection.get_admin().result()
    admin.alter_table(path, add_columns=[pa.field(name, pa.string())]).result()


@pytest.mark.parametrize("layout", ["turns", "both"])
def test_columns_that_are_added_do_not_stop_a_load(
    sink_connection: FlussConnection, sink_database: str, layout: str
) -> None:
    path = make_target(sink_connection, sink_database, layout)
    load_rows(sink_connection, path, rows(100), "done")
    with pytest.raises(OSError, match="gone"):
        load_rows(sink_connection, path, broken_off(rows(400, 1000), 250), "half")
    add_column(sink_connection, path, "added")
    assert load_rows(sink_connection, path, rows(100), "done").details["was_done_before"]
    assert load_rows(sink_connection, path, rows(400, 1000), "half").rows == 400
    add_column(sink_connection, path, "another")
    assert load_rows(sink_connection, path, rows(400, 1000), "half").details["was_done_before"]
    found = sorted(log_rows(sink_connection, path).column("id").to_pylist())
    assert found == [*range(100), *range(1000, 1400)]


def test_columns_that_are_added_to_a_key_table(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = make_target(sink_connection, sink_database, schema=KEYED, primary_keys=["id"])
    whole = pa.table({"id": range(400), "value": [f"v{i}" for i in range(400)]})
    with pytest.raises(OSError, match="gone"):
        load_rows(sink_connection, path, broken_off(whole, 250), "half")
    add_column(sink_connection, path, "note")
    noted = pa.table({"id": [1, 399], "value": ["own", "own"], "note": ["n", "n"]})
    load_rows(sink_connection, path, noted, "noted")
    load_rows(sink_connection, path, whole, "half")
    assert values(sink_connection, path, [1, 398, 399]) == ["own", "v398", "v399"]
    lookuper = sink_connection.get_table(path).result().new_lookup().create_lookuper()
    assert lookuper.lookup({"id": 399}).result() == {"id": 399, "value": "v399", "note": "n"}


def test_columns_that_are_added_while_deletes_are_loaded(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    """Such rows need the new column, and are the same rows with nulls in it."""
    path = make_target(sink_connection, sink_database, schema=KEYED, primary_keys=["id"])
    kinds = ["+I" if i % 4 else "-D" for i in range(400)]
    whole = pa.table({"id": range(400), "value": ["v"] * 400, "_change_type": kinds})
    load_rows(sink_connection, path, whole, "done")
    with pytest.raises(OSError, match="gone"):
        load_rows(sink_connection, path, broken_off(whole, 250), "half")
    add_column(sink_connection, path, "note")
    assert load_rows(sink_connection, path, whole, "done").details["was_done_before"]
    with pytest.raises(RowError, match="lack note"):
        load_rows(sink_connection, path, whole, "half")
    with pytest.raises(RowsDifferError, match="the columns were id, value, _change_type, and are"):
        load_rows(sink_connection, path, with_note(whole, "n"), "half")
    assert load_rows(sink_connection, path, with_note(whole, None), "half").rows == 400
    assert values(sink_connection, path, [396, 399]) == [None, "v"]


def with_note(table: pa.Table, note: str | None) -> pa.Table:
    return table.append_column("note", pa.array([note] * len(table), pa.string()))


def test_other_columns_are_other_rows_and_the_advice_doubles_nothing(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = make_target(sink_connection, sink_database)
    own = rows(400).select(["id", "region"])
    with pytest.raises(OSError, match="gone"):
        load_rows(sink_connection, path, broken_off(own, 250), "half")
    more = own.append_column("small", pa.array([7] * 400, pa.int16()))
    with pytest.raises(RowsDifferError) as raised:
        load_rows(sink_connection, path, more, "half")
    assert "the columns were id, region, and are id, region, small" in raised.value.message
    assert "would be written a second time" in raised.value.message
    assert "id of their own" not in raised.value.message
    load_rows(sink_connection, path, own, "half")
    assert sorted(log_rows(sink_connection, path).column("id").to_pylist()) == list(range(400))


def test_a_reader_is_read_once(sink_connection: FlussConnection, sink_database: str) -> None:
    path = make_target(sink_connection, sink_database, "partitioned")
    elsewhere = rows(20).set_column(1, SCHEMA.field("region"), [["new"] * 20])
    reader = elsewhere.to_reader(5)
    with pytest.raises(PartitionNotExistError):
        load_rows(sink_connection, path, reader, "id")
    for load_id in ("id", "other"):
        with pytest.raises(RowsUsedError, match="gives its rows once") as raised:
            load_rows(sink_connection, path, reader, load_id, create_partitions=True)
        assert isinstance(raised.value, LoadError)
    receipt = load_rows(sink_connection, path, elsewhere.to_reader(5), "id", create_partitions=True)
    assert receipt.rows == 20
    assert log_rows(sink_connection, path).num_rows == 20


def test_a_load_that_had_rows_does_not_end_without_any(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    """Another reader over the same source, which is at its end."""
    path = make_target(sink_connection, sink_database, "partitioned")
    elsewhere = rows(20).set_column(1, SCHEMA.field("region"), [["new"] * 20])
    source = iter(elsewhere.to_batches())

    def reader() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(SCHEMA, source)

    with pytest.raises(PartitionNotExistError):
        load_rows(sink_connection, path, reader(), "id")
    with pytest.raises(RowsDifferError, match="more rows then than now"):
        load_rows(sink_connection, path, reader(), "id", create_partitions=True)
    assert load_rows(sink_connection, path, elsewhere, "id", create_partitions=True).rows == 20


def test_a_reader_that_no_call_has_read_may_come_again(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = make_target(sink_connection, sink_database)
    reader = rows(20).to_reader()
    with pytest.raises(ConfigError):
        load_rows(sink_connection, path, reader, "")
    assert load_rows(sink_connection, path, reader, "id").rows == 20


@pytest.mark.parametrize("load_id", ["", " \n", None, 7])
def test_a_load_needs_an_id(
    sink_connection: FlussConnection, sink_database: str, load_id: Any
) -> None:
    path = make_target(sink_connection, sink_database)
    with pytest.raises(ConfigError, match="a load id is a text that is not empty"):
        load_rows(sink_connection, path, rows(1), load_id)
    with pytest.raises(ConfigError, match="a load id is a text that is not empty"):
        load_is_known(sink_connection, path, load_id)
    assert log_rows(sink_connection, path).num_rows == 0
