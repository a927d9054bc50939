"""Names, files and texts made to break out: of a directory, of a statement, of memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_orchestrate import IncrementalScan, ParquetSink, SqlCheckpointStore, SqlSink
from fluss_orchestrate import run_increment as run_once
from fluss_orchestrate.core.provisioning.spec import load_table_specs
from fluss_orchestrate.core.sinks.base import SchemaPolicy
from tests.contract.tables import Tables, done

ESCAPES = ["../out", "..", ".", "a/b", "/abs", "a\\b", "a\x00b", "~", "a\nb", "%2e%2e", "x" * 300]
HOSTILE = ['t"; DROP TABLE kept; --', "t'; DROP TABLE kept; --", "a :b", "a%sb", "[x]", "a b", "é"]


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    """A connection to an embedded directory that has neighbours."""
    (tmp_path / "home" / "data").mkdir(parents=True)
    config = fluss.Config({"bootstrap.servers": f"embedded:{tmp_path / 'home' / 'data'}"})
    with done(fluss.FlussConnection.create(config)) as connection:
        yield connection


def neighbours(root: Path) -> set[Path]:
    """Everything outside the engine's own directory."""
    inside = root / "home" / "data"
    return {p for p in root.rglob("*") if inside not in p.parents and p != inside}


@pytest.mark.parametrize("name", ESCAPES)
def test_no_name_leads_out_of_an_embedded_directory(
    name: str, opened: fluss.FlussConnection, tmp_path: Path
) -> None:
    before = neighbours(tmp_path)
    admin = done(opened.get_admin())
    done(admin.create_database("d"))
    schema = fluss.Schema(pa.schema([("id", pa.int64()), ("p", pa.string())]))
    described = fluss.TableDescriptor(schema, partition_keys=["p"], bucket_count=1)
    done(admin.create_table(fluss.TablePath("d", "t"), described))
    attempts: list[Callable[[], Any]] = [
        lambda: done(admin.create_database(name)),
        lambda: done(admin.create_table(fluss.TablePath("d", name), described)),
        lambda: done(admin.create_table(fluss.TablePath(name, "t"), described)),
        lambda: done(admin.create_partition(fluss.TablePath("d", "t"), {"p": name})),
        lambda: done(admin.get_table_info(fluss.TablePath("..", name))),
        lambda: done(admin.drop_table(fluss.TablePath(name, "t"))),
        lambda: done(admin.drop_database(name)),
    ]
    refused = 0
    for attempt in attempts:
        try:
            attempt()
        except errors.FlussError:
            refused += 1
    assert refused >= 4
    assert neighbours(tmp_path) == before


@pytest.mark.parametrize("name", ["../../out", "a/b", "..", "x\x00y"])
def test_no_checkpoint_or_run_leads_out_of_a_sink(
    name: str, opened: fluss.FlussConnection, tmp_path: Path
) -> None:
    tables = _filled(opened)
    sink = ParquetSink(str(tmp_path / "home" / "data" / "sink"))
    before = neighbours(tmp_path)
    with SqlCheckpointStore(f"sqlite:///{tmp_path / 'home' / 'data' / 'store'}") as store:
        scan_names = [(name, "one"), ("fine", name)]
        for checkpoint, run_key in scan_names:
            try:
                scan = IncrementalScan(opened, tables, checkpoint, store)
                run_once(scan, sink, run_key=run_key)
            except errors.FlussError:
                continue
    assert neighbours(tmp_path) == before


def _filled(connection: fluss.FlussConnection) -> str:
    admin = done(connection.get_admin())
    done(admin.create_database("d"))
    tables = Tables(connection, admin, "d")
    table = tables.create({"id": pa.int64()})
    tables.append(table, pa.table({"id": [1, 2, 3]}))
    return str(table.get_table_path())


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_names_in_sql(name: str, opened: fluss.FlussConnection, tmp_path: Path) -> None:
    """A hostile table and a hostile column, created, extended and filled; another table lives."""
    database = tmp_path / "target.db"
    with sqlite3.connect(database) as direct:
        direct.execute("CREATE TABLE kept (x)")
    table = fluss.TablePath.parse(_filled(opened))
    admin = done(opened.get_admin())
    sink = SqlSink(f"sqlite:///{database}", name, schema_policy=SchemaPolicy.ADD_COLUMNS)
    with SqlCheckpointStore(f"sqlite:///{database}", table=f"store_{name}") as store:
        first = IncrementalScan(opened, str(table), name, store)
        assert run_once(first, sink, run_key="one").receipt.rows == 3
        done(admin.alter_table(table, add_columns=[pa.field(name, pa.string())]))
        again = done(opened.get_table(table))
        Tables(opened, admin, "d").append(again, pa.table({"id": [4], name: [name]}))
        assert run_once(first, sink, run_key=name).receipt.rows == 1
        assert store.names() == [name]
    with sqlite3.connect(database) as direct:
        names = {row[0] for row in direct.execute("SELECT name FROM sqlite_master")}
        assert {"kept", name, f"store_{name}"} <= names
        quoted = name.replace('"', '""')
        found = direct.execute(f'SELECT id, "{quoted}" FROM "{quoted}" ORDER BY id').fetchall()
    direct.close()
    assert found == [(1, None), (2, None), (3, None), (4, name)]


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    + ["tables: [{table: d.t, columns: {id: int}, custom_properties: {x: *a11}}]"]
)
BAD_YAML = {
    "code": "tables: !!python/object/apply:os.system ['echo broken']\n",
    "bomb": BOMB,
    "a loop": "tables: &a\n  - *a\n",
    "deep": "tables:\n" + "[" * 5_000,
    "control": "tables: [\x00]\n",
    "nothing": "\n",
    "a tag": "tables: !x\n  - 1\n",
    "a number of tables": "tables: 3\n",
    "a date as a table": "tables:\n- table: 2026-01-01\n",
}


@pytest.mark.parametrize("case", sorted(BAD_YAML))
def test_yaml_that_is_no_spec_is_refused(case: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(errors.SchemaError):
        load_table_specs(BAD_YAML[case])
    assert "broken" not in capfd.readouterr().out


def test_no_shell_and_no_unsafe_reader_in_the_packages() -> None:
    root = Path(__file__).parents[2]
    forbidden = ("shell=True", "yaml.load(", "os.system(", "os.popen(")
    found = [
        f"{path.relative_to(root)}: {word}"
        for package in ("fluss_client", "fluss_orchestrate")
        for path in (root / package).rglob("*.py")
        for line in path.read_text().splitlines()
        for word in forbidden
        if word in line
    ]
    assert found == []
