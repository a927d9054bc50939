"""Data files with lists of rows: deleted rows, added columns, files that cannot be read here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue, GreaterThan
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from fluss_client.errors import UnsupportedError
from fluss_orchestrate.core.lake import data_files, file_scan
from fluss_orchestrate.core.lake.commits import commit_append
from fluss_orchestrate.core.lake.data_files import DataFileWriter, conform
from fluss_orchestrate.core.lake.file_scan import file_parts, read_file, read_scan, read_tasks
from fluss_orchestrate.core.read_ahead import read_ahead

ROWS = pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int32())])))
VALUES: list[Any] = [None, [], [{"x": 1}], [None], None, [{"x": None}]]


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    """An Iceberg table with one data file, and that file."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("odd name", ROWS)])
    table = catalog.create_table("n.t", schema)
    writer = DataFileWriter(table, None, "data")
    writer.write(pa.record_batch([list(range(6)), pa.array(VALUES, ROWS)], schema=schema))
    return table, writer.close()


def deletes(lake: Any, tmp_path: Path, positions: list[int], kind: FileFormat) -> DataFile:
    _, file = lake
    path = f"{tmp_path}/deletes.parquet"
    named = [file.file_path] * len(positions) + ["another file"]
    pq.write_table(pa.table({"file_path": named, "pos": [*positions, 0]}), path)
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=kind,
        partition=Record(),
        record_count=len(named),
        file_size_in_bytes=1,
        spec_id=0,
    )


def test_deleted_rows_are_left_out(lake: Any, tmp_path: Path) -> None:
    table, file = lake
    task = FileScanTask(file, {deletes(lake, tmp_path, [1, 4], FileFormat.PARQUET)})
    found = read_tasks(table, table.schema(), GreaterThan("id", 0), [task])
    rows = pa.Table.from_batches(list(found)).to_pylist()
    assert rows == [{"id": i, "odd name": VALUES[i]} for i in (2, 3, 5)]
    unknown = FileScanTask(file, {deletes(lake, tmp_path, [1], FileFormat.PUFFIN)})
    with pytest.raises(UnsupportedError, match="compaction"):
        list(read_tasks(table, table.schema(), AlwaysTrue(), [unknown]))


def test_columns_that_a_file_lacks_are_null(lake: Any) -> None:
    table, file = lake
    commit_append(table, [file], {})
    table.refresh()
    with table.update_schema() as update:
        update.add_column("later", StringType())
        update.rename_column("odd name", "rows")
    rows = read_scan(table.scan(), table).read_all().to_pylist()
    assert rows == [{"id": i, "rows": VALUES[i], "later": None} for i in range(6)]
    assert read_scan(table.scan(), table, 2).read_all().num_rows == 2


def test_parts_of_a_file_are_the_whole_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row by row, without deleted ones; texts that come again as references into a dictionary."""
    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES", 20_000)
    monkeypatch.setattr(file_scan, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(file_scan, "PART_BYTES", 30_000)
    count = 5_000
    names = [None if n % 7 == 0 else f"customer {n % 40}" for n in range(count)]
    columns = {
        "id": list(range(count)),
        "odd.name": names,
        "note": [f"{n} is written once" for n in range(count)],
        "nothing": pa.array([None] * count, pa.string()),
    }
    rows = pa.record_batch(columns)
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", rows.schema)
    writer = DataFileWriter(table, None, "data")
    for start in range(0, count, 250):
        writer.write(rows.slice(start, 250))
    file = writer.close()
    assert pq.ParquetFile(file.file_path.removeprefix("file://")).num_row_groups > 5
    gone = [0, 1, 777, 2_500, 4_999]
    task = FileScanTask(file, {deletes((table, file), tmp_path, gone, FileFormat.PARQUET)})
    wanted = rows.filter(pa.array([n not in gone for n in range(count)]))
    parts = list(file_parts(table, table.schema(), AlwaysTrue(), task, [1, 2, 3, 4]))
    assert len(parts) > 2
    batches = [batch for part in parts for batch in part()]
    assert [pa.types.is_dictionary(kind) for kind in batches[0].schema.types[:3]] == [0, 1, 0]
    found = pa.Table.from_batches([conform(batch, rows.schema) for batch in batches])
    assert found.to_pylist() == wanted.to_pylist()
    whole = read_file(table, table.schema(), AlwaysTrue(), task)
    assert pa.Table.from_batches(whole).to_pylist() == wanted.to_pylist()
    chosen = list(file_parts(table, table.schema(), GreaterThan("id", 4_000), task, [1, 2, 3, 4]))
    assert sum(batch.num_rows for part in chosen for batch in part()) == 998


def test_one_batch_is_read_ahead() -> None:
    """In order, no further than one batch, with the error where it belongs; closed, it ends."""
    made: list[int] = []
    closed: list[bool] = []

    def batches(count: int) -> Iterator[pa.RecordBatch]:
        try:
            for number in range(count):
                made.append(number)
                yield pa.record_batch({"n": [number]})
            raise OSError("the disk is gone")
        finally:
            closed.append(True)

    with read_ahead(batches(5)) as reading:
        assert [next(reading).column("n")[0].as_py() for _ in range(5)] == list(range(5))
        with pytest.raises(OSError, match="the disk is gone"):
            next(reading)
    made.clear()
    with read_ahead(batches(9)) as dropped:
        assert next(dropped).column("n")[0].as_py() == 0
    assert made == [0, 1]
    assert len(closed) == 2
    assert not [t for t in threading.enumerate() if t.name.startswith("fluss-ahead")]
