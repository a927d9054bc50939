"""The support matrix lists every call of the Java client, and cannot tick what no test proves."""

from __future__ import annotations

import pytest

from tests.interop.java_peer import JavaPeer
from tests.support_matrix import faults, render
from tests.support_rows import ROWS

CLIENT = "org.apache.fluss.client"
INTERFACES = [
    "Connection",
    "admin.Admin",
    "table.Table",
    "table.writer.Append",
    "table.writer.Upsert",
    "table.writer.TableWriter",
    "table.writer.AppendWriter",
    "table.writer.UpsertWriter",
    "table.scanner.Scan",
    "table.scanner.log.LogScanner",
    "table.scanner.batch.BatchScanner",
    "lookup.Lookup",
    "lookup.Lookuper",
]


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_method_of_the_java_client_has_a_row(java_peer: JavaPeer, interface: str) -> None:
    methods = java_peer.call({}, "methods", f"{CLIENT}.{interface}")
    assert methods
    known = {member for row in ROWS.values() for member in row.java_members}
    name = interface.rpartition(".")[2]
    assert [m for m in methods if f"{name}.{m}" not in known] == []


def test_what_no_test_proves_is_a_fault() -> None:
    proven = {name: {"tests/t.py::t": True} for name, row in ROWS.items() if not row.reason}
    assert faults(proven, {}) == []
    assert faults(proven, {"tests/t.py::t": "passed"}) == []
    assert "tests/t.py::t failed" in faults(proven, {"tests/t.py::t": "failed"})[0]

    missing = {name: tests for name, tests in proven.items() if name != "Upsert"}
    assert faults(missing, {}) == ["'Upsert' has no test on a real cluster"]
    elsewhere = proven | {"Upsert": {"tests/t.py::t": False}}
    assert faults(elsewhere, {}) == ["'Upsert' has no test on a real cluster"]
    unknown = proven | {"Uppsert": {"tests/t.py::t": True}}
    assert "is no row" in faults(unknown, {})[0]
    denied = proven | {"Scan.filter": {"tests/t.py::t": True}}
    assert "said not to be offered" in faults(denied, {})[0]


def test_what_was_run_names_its_test() -> None:
    proven = {name: {"tests/t.py::t": True} for name, row in ROWS.items() if not row.reason}
    text = render(proven)
    assert "| Upsert | `UpsertWriter.upsert` | run | scripted | `t.py::t` |" in text
    reason = "the client tests the rows; servers leave out batches from 1.0 on, see there"
    assert f"| Scan.filter |  | — | scripted | {reason} |" in text
    assert "| Type ROW | `struct` | run | bytes | `t.py::t` |" in text
