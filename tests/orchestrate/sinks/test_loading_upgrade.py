"""Loads that commit 69c611a began or finished: they open and go on.

`golden` holds an embedded directory with such loads, and the rows of its ledger, made by that
commit. Its digests are over all columns that a table had.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import Config, FlussConnection, Schema, TableDescriptor, TablePath
from fluss_client.errors import RowError
from fluss_client.runtime import runtime
from fluss_orchestrate import load_rows
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.loading import LoadError, RowsDifferError
from fluss_orchestrate.core.loading import ledger as ledgers
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import FlussTableSink
from tests.orchestrate.sinks.plans import expected_ids, ids, read
from tests.orchestrate.sinks.targets import log_rows
from tests.orchestrate.sinks.test_loading_again import add_column

GOLDEN = Path(__file__).parent / "golden"
MADE_MS = 1_794_984_060_000
"""When the loads were begun: a half-done load can go on within six days."""
STORED: dict[str, Any] = json.loads((GOLDEN / "load-pins-69c611a.json").read_text())
EVENTS = pa.schema([("id", pa.int64()), ("region", pa.string()), ("amount", pa.int32())])
STATE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("value", pa.string()),
        pa.field("note", pa.string()),
    ]
)

pytestmark = pytest.mark.usefixtures("small_units")
ADDED = pytest.mark.parametrize("added", [0, 2], ids=["as it was", "columns added"])


def events(count: int, first: int = 0) -> pa.Table:
    """Rows without `amount`."""
    regions = [f"r{i % 3}" for i in range(count)]
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), "region": regions})


def keyed(count: int) -> pa.Table:
    """Rows without `note`."""
    return pa.table({"id": range(count), "value": [f"v{i}" for i in range(count)]})


def changes(count: int) -> pa.Table:
    """Whole rows, every fourth of them a delete."""
    kinds = pa.array(["+I" if i % 4 else "-D" for i in range(count)])
    whole = keyed(count).append_column("note", pa.nulls(count, pa.string()))
    return whole.append_column("_change_type", kinds)


@pytest.fixture
def old_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlussConnection]:
    """The embedded directory that the commit has left, a minute later."""
    with tarfile.open(GOLDEN / "loads-69c611a.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.setattr(ledgers, "now_ms", lambda: MADE_MS + 60_000)
    address = {"bootstrap.servers": f"embedded:{tmp_path}"}
    with FlussConnection.create(Config(address)).result() as made:
        yield made


def table(name: str) -> TablePath:
    return TablePath("golden", name)


def rows_of(connection: FlussConnection, path: TablePath) -> dict[int, dict[str, Any]]:
    lookup = connection.get_table(path).result().new_lookup()
    found = lookup.lookup_many([{"id": key} for key in range(400)]).result()
    return {row["id"]: row for row in found if row is not None}


@ADDED
def test_appends(old_connection: FlussConnection, added: int) -> None:
    path = table("events")
    for number in range(added):
        add_column(old_connection, path, f"added{number}")
    done = load_rows(old_connection, path, events(100), "done")
    assert done.details["was_done_before"]
    assert done.rows == 100
    assert load_rows(old_connection, path, EVENTS.empty_table(), "empty").rows == 0
    with pytest.raises(RowsDifferError, match="not in content"):
        load_rows(old_connection, path, events(100, first=1), "done")
    with pytest.raises(RowsDifferError, match="not in content"):
        load_rows(old_connection, path, events(400, first=1001), "half")
    assert load_rows(old_connection, path, events(400, first=1000), "half").rows == 400
    assert load_rows(old_connection, path, events(10, first=5000), "begun").rows == 10
    again = load_rows(old_connection, path, events(400, first=1000), "half")
    assert again.details["was_done_before"]
    assert ids(log_rows(old_connection, path)) == [
        *range(100),
        *range(1000, 1400),
        *range(5000, 5010),
    ]


@ADDED
def test_upserts_and_deletes(old_connection: FlussConnection, added: int) -> None:
    for name in ("state", "changes"):
        for number in range(added):
            add_column(old_connection, table(name), f"added{number}")
    before = rows_of(old_connection, table("state"))
    assert load_rows(old_connection, table("state"), keyed(400), "half").rows == 400
    after = rows_of(old_connection, table("state"))
    assert [row["value"] for row in after.values()] == [f"v{i}" for i in range(400)]
    # What the old release has set to null is lost; the rest of the load keeps what is there.
    assert [row["note"] for row in after.values()] == [row["note"] for row in before.values()]
    assert after[399]["note"] == "n399"

    done = load_rows(old_connection, table("changes"), changes(60), "done")
    assert done.details["was_done_before"]
    if added:
        with pytest.raises(RowError, match="lack added0, added1"):
            load_rows(old_connection, table("changes"), changes(400), "half")
        nulls = pa.nulls(400, pa.string())
        whole = changes(400).append_column("added0", nulls).append_column("added1", nulls)
    else:
        whole = changes(400)
    assert load_rows(old_connection, table("changes"), whole, "half").rows == 400
    kept = [i for i in range(400) if i % 4]
    assert list(rows_of(old_connection, table("changes"))) == kept


def test_plans(old_connection: FlussConnection) -> None:
    plan = ScanPlan.from_json(STORED["plan"])
    sink = FlussTableSink(old_connection, table("copy"))
    assert sink.already_done(plan) is None
    assert sink.write(plan, read).rows == 350
    assert ids(log_rows(old_connection, table("copy"))) == expected_ids(plan)


def put_pins(connection: FlussConnection, path: TablePath, name: str, load_id: str) -> None:
    """The stored pins of a half-done load, for a new table: with its id, and writer ids of now."""
    info = connection.get_admin().result().get_table_info(path).result()
    ledger = ledgers.open_ledger(connection)
    for pin in STORED["pins"]:
        if (pin["table"], pin["load_id"]) != (name, "half"):
            continue
        body = dict(pin["body"])
        if "writer_ids" in body:
            backend = connection.core.backend
            body["writer_ids"] = [
                runtime().call(backend.init_writer([path])) for _ in body["writer_ids"]
            ]
            body["before"] = [[partition, bucket, 0] for partition, bucket, _ in body["before"]]
        row = {
            "name": f"load/{info.table_id}/{load_id}",
            "seq": pin["seq"],
            "kind": pin["kind"],
            "plan_id": load_id,
            "created_ms": now_ms(),
            "body": json.dumps(body).encode(),
        }
        runtime().call(ledger.put([row]))


@ADDED
@pytest.mark.parametrize("name", ["events", "state"])
def test_pins_on_either_backend(
    sink_connection: FlussConnection, sink_database: str, name: str, added: int
) -> None:
    path = TablePath(sink_database, name)
    schema = Schema(EVENTS) if name == "events" else Schema(STATE, primary_keys=["id"])
    descriptor = TableDescriptor(schema, bucket_count=3)
    sink_connection.get_admin().result().create_table(path, descriptor).result()
    put_pins(sink_connection, path, name, "half")
    for number in range(added):
        add_column(sink_connection, path, f"added{number}")
    rows = events(400, first=1000) if name == "events" else keyed(400)
    with pytest.raises(RowsDifferError):
        load_rows(sink_connection, path, rows.slice(0, 200), "half")
    assert load_rows(sink_connection, path, rows, "half").rows == 400
    assert load_rows(sink_connection, path, rows, "half").details["was_done_before"]
    first = rows.column("id")[0].as_py()
    assert ids(log_rows(sink_connection, path)) == list(range(first, first + 400))


def test_a_load_of_a_newer_release_is_left_to_it(
    sink_connection: FlussConnection, sink_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = TablePath(sink_database, "events")
    descriptor = TableDescriptor(Schema(EVENTS), bucket_count=1)
    sink_connection.get_admin().result().create_table(path, descriptor).result()
    pin = {"table": "events", "load_id": "half", "seq": 0, "kind": "cut"}
    newer = {"pins": [pin | {"body": {"batch_rows": 7, "digest": 3, "columns": []}}]}
    monkeypatch.setitem(globals(), "STORED", newer)
    put_pins(sink_connection, path, "events", "half")
    with pytest.raises(LoadError, match=r"newer release \(digest version 3"):
        load_rows(sink_connection, path, events(10), "half")
