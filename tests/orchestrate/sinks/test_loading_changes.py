"""Loads into key tables: every form of the change type, and rows that lack columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from fluss_client.errors import ChangeTypeError, RowError, UnsupportedError
from fluss_orchestrate import load_rows
from fluss_orchestrate.core.loading import load_is_known
from fluss_orchestrate.core.sinks import FlussTableSink
from tests.orchestrate.sinks.plans import make_plan
from tests.orchestrate.sinks.targets import KEYED, log_rows, make_target, values

pytestmark = pytest.mark.usefixtures("small_units")

STATE = pa.schema([*KEYED, pa.field("note", pa.string())])
FORMS = {
    "signs": pa.array(["+I", "-U", "+U", "-D", "+A"]),
    "words": pa.array(["insert", "update_before", "update_after", "delete", "append_only"]),
    "mixed": pa.array(["+I", "update_before", "+U", "delete", "+A"], pa.large_string()),
    "views": pa.array(["+I", "-U", "+U", "-D", "+A"], pa.string_view()),
    "dictionary": pa.array(["+I", "-U", "+U", "-D", "+A"]).dictionary_encode(),
    "int8": pa.array([1, 2, 3, 4, 0], pa.int8()),
    "uint64": pa.array([1, 2, 3, 4, 0], pa.uint64()),
}
UNKNOWN: dict[str, tuple[pa.Array, object]] = {
    "null": (pa.array(["+I", None]), None),
    "letter": (pa.array(["+I", "D"]), "D"),
    "case": (pa.array(["+I", "-d"]), "-d"),
    "code": (pa.array([1, 9], pa.int8()), 9),
    "float": (pa.array([1.0, 4.0]).slice(1), 4.0),
    "view": (pa.array(["+I", "remove"], pa.string_view()), "remove"),
}


def key_table(
    connection: FlussConnection, database: str, schema: pa.Schema = KEYED, **properties: str
) -> TablePath:
    """A table with the key `id`."""
    path = TablePath(database, "target")
    descriptor = TableDescriptor(
        Schema(schema, primary_keys=["id"]), bucket_count=3, properties=properties
    )
    connection.get_admin().result().create_table(path, descriptor).result()
    return path


def stored(connection: FlussConnection, path: TablePath, key: int) -> dict[str, Any] | None:
    """The row of a key."""
    found = connection.get_table(path).result().new_lookup().create_lookuper()
    row: dict[str, Any] | None = found.lookup({"id": key}).result()
    return row


def changes(kinds: pa.Array) -> pa.Table:
    """The keys 0, 1, …, each with one change."""
    count = len(kinds)
    names = [f"new{key}" for key in range(count)]
    return pa.table({"id": range(count), "value": names, "_change_type": kinds})


def test_every_form_of_the_change_type(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = key_table(sink_connection, sink_database)
    old = pa.table({"id": range(5), "value": [f"old{key}" for key in range(5)]})
    for form, kinds in FORMS.items():
        load_rows(sink_connection, path, old, f"old/{form}")
        load_rows(sink_connection, path, changes(kinds), form)
        expected = ["new0", "old1", "new2", None, "new4"]
        assert values(sink_connection, path, list(range(5))) == expected, form
    # The form is not what tells rows apart.
    again = load_rows(sink_connection, path, changes(FORMS["int8"]), "words")
    assert again.details["was_done_before"]


@pytest.mark.parametrize("case", list(UNKNOWN))
def test_what_is_no_change_type_is_refused(
    sink_connection: FlussConnection, sink_database: str, case: str
) -> None:
    path = key_table(sink_connection, sink_database)
    kinds, value = UNKNOWN[case]
    rows = changes(kinds)
    at = len(kinds) - 1
    for source in (rows, rows.to_reader()):
        with pytest.raises(ChangeTypeError, match="is not a change type") as raised:
            load_rows(sink_connection, path, source, "refused")
        assert (raised.value.row, raised.value.value) == (at, value)
    plan = make_plan((0, 0, len(rows)))
    with pytest.raises(ChangeTypeError):
        FlussTableSink(sink_connection, path).write(plan, lambda _: rows.to_reader())
    assert values(sink_connection, path, [0, 1]) == [None, None]


def test_the_row_of_a_bad_change_type_counts_from_the_beginning_of_the_load(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = key_table(sink_connection, sink_database)
    kinds = pa.array(["+I"] * 300 + ["x"])
    with pytest.raises(ChangeTypeError, match="row 300, counted from 0: 'x'"):
        load_rows(sink_connection, path, changes(kinds).to_reader(50), "reader")
    assert values(sink_connection, path, [0]) == ["new0"], "of a reader, earlier rows were sent"
    with pytest.raises(ChangeTypeError, match="row 299"):
        load_rows(sink_connection, path, changes(kinds).slice(1), "table")
    assert not load_is_known(sink_connection, path, "table"), "nothing of a table is sent"
    load_rows(sink_connection, path, changes(kinds.slice(0, 300)), "mended")


def test_what_a_scanner_gives_can_be_loaded(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    source = make_target(sink_connection, sink_database, schema=KEYED, primary_keys=["id"])
    load_rows(sink_connection, source, changes(pa.array(["+I"] * 3)), "first")
    load_rows(sink_connection, source, changes(pa.array(["-D", "+U"])), "second")
    admin = sink_connection.get_admin().result()
    copy = TablePath(sink_database, "copy")
    descriptor = TableDescriptor(Schema(KEYED, primary_keys=["id"]), bucket_count=1)
    admin.create_table(copy, descriptor).result()
    load_rows(sink_connection, copy, log_rows(sink_connection, source), "changelog")
    assert values(sink_connection, copy, [0, 1, 2]) == [None, "new1", "new2"]


def test_columns_that_rows_lack_keep_their_values(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    path = key_table(sink_connection, sink_database, STATE)
    whole = pa.table({"id": [1, 2], "value": ["a", "b"], "note": ["n1", "n2"]})
    load_rows(sink_connection, path, whole, "whole")
    load_rows(sink_connection, path, whole.select(["value", "id"]).slice(0, 1), "same")
    part = pa.table({"value": ["x", "y"], "id": [1, 3]})
    load_rows(sink_connection, path, part, "part")
    assert stored(sink_connection, path, 1) == {"id": 1, "value": "x", "note": "n1"}
    assert stored(sink_connection, path, 3) == {"id": 3, "value": "y", "note": None}
    upserts = part.append_column("_change_type", pa.array(["+U", "+I"]))
    sink = FlussTableSink(sink_connection, path)
    sink.write(make_plan((0, 0, 2)), lambda _: upserts.to_reader())
    nulls = pa.table({"id": [2], "note": pa.nulls(1, pa.string())})
    load_rows(sink_connection, path, nulls, "null is a value")
    assert stored(sink_connection, path, 1) == {"id": 1, "value": "x", "note": "n1"}
    assert stored(sink_connection, path, 2) == {"id": 2, "value": "b", "note": None}
    with pytest.raises(RowError, match="lack id of the primary key"):
        load_rows(sink_connection, path, nulls.select(["note"]), "no key")


def test_deletes_need_all_columns(sink_connection: FlussConnection, sink_database: str) -> None:
    """A delete of some columns sets them to null on the server, and the row stays."""
    path = key_table(sink_connection, sink_database, STATE)
    whole = pa.table({"id": [1, 2], "value": ["a", "b"], "note": ["n1", "n2"]})
    load_rows(sink_connection, path, whole, "whole")
    part = pa.table({"id": [2, 1], "value": ["x", "y"], "_change_type": ["+U", "-D"]})
    message = "row 1, counted from 0, is a delete, and the rows lack note"
    for rows in (part, part.to_reader()):
        with pytest.raises(RowError, match=message):
            load_rows(sink_connection, path, rows, "part")
    sink = FlussTableSink(sink_connection, path)
    with pytest.raises(RowError, match=message):
        sink.write(make_plan((0, 0, 2)), lambda _: part.to_reader())
    assert stored(sink_connection, path, 1) == {"id": 1, "value": "a", "note": "n1"}
    assert stored(sink_connection, path, 2) == {"id": 2, "value": "b", "note": "n2"}
    table = sink_connection.get_table(path).result()
    with table.new_upsert(columns=["id", "value"]).create_writer() as writer:
        writer.delete({"id": 1})
    assert stored(sink_connection, path, 1) == {"id": 1, "value": None, "note": "n1"}
    mended = part.append_column("note", pa.nulls(2, pa.string()))
    load_rows(sink_connection, path, mended, "mended")
    assert stored(sink_connection, path, 1) is None


def test_tables_that_take_no_partial_updates(
    sink_connection: FlussConnection, sink_database: str
) -> None:
    strict = pa.schema([KEYED.field("id"), pa.field("value", pa.string(), False), STATE.field(2)])
    path = key_table(sink_connection, sink_database, strict)
    part = pa.table({"id": [1], "value": ["a"]})
    with pytest.raises(RowError, match=r"lack note of .* NOT NULL beside its key \(value\)"):
        load_rows(sink_connection, path, part, "id")
    load_rows(sink_connection, path, part.append_column("note", pa.nulls(1, pa.string())), "id")
    assert stored(sink_connection, path, 1) == {"id": 1, "value": "a", "note": None}


def test_the_first_row_stays(sink_connection: FlussConnection, sink_database: str) -> None:
    path = key_table(sink_connection, sink_database, STATE, **{"table.merge-engine": "first_row"})
    whole = pa.table({"id": [1], "value": ["a"], "note": ["n1"]})
    load_rows(sink_connection, path, whole, "first")
    load_rows(sink_connection, path, pa.table({"id": [1, 2], "value": ["x", "y"]}), "second")
    assert stored(sink_connection, path, 1) == {"id": 1, "value": "a", "note": "n1"}
    assert stored(sink_connection, path, 2) == {"id": 2, "value": "y", "note": None}


def test_versioned_tables_need_all_columns(
    sink_connection: FlussConnection, sink_database: str, fluss_kind: str
) -> None:
    schema = pa.schema([*KEYED, pa.field("version", pa.int64())])
    versioned = {
        "table.merge-engine": "versioned",
        "table.merge-engine.versioned.ver-column": "version",
    }
    # The embedded engine has no such tables, and says so already when one is made.
    if fluss_kind == "embedded":
        with pytest.raises(UnsupportedError, match="versioned"):
            key_table(sink_connection, sink_database, schema, **versioned)
        return
    path = key_table(sink_connection, sink_database, schema, **versioned)
    with pytest.raises(RowError, match="its merge engine is versioned"):
        load_rows(sink_connection, path, pa.table({"id": [1], "version": [1]}), "part")
