"""Bulk loads on two local workers: every source, every row once, whatever is started again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client.errors import RowError
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.loading.errors import LoadError, RowsDifferError
from fluss_orchestrate.core.loading.sources import SourceError
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource
from fluss_orchestrate.spark.loading.load import run_load
from tests.spark.conftest import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NewId = Callable[[], str]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])


def numbered(rows: int, first: int = 0) -> pa.Table:
    ids = np.arange(first, first + rows)
    return pa.table({"id": ids, "word": [f"w{i % 97}" for i in ids]}, schema=SCHEMA)


def write_files(folder: Path, files: int, rows: int, group_rows: int = 1000) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        path = folder / f"part-{number:03}.parquet"
        pq.write_table(numbered(rows, number * rows), path, row_group_size=group_rows)
        paths.append(str(path))
    return paths


def quiet(line: str) -> None:
    """Nothing of the progress is shown."""


def ids_of(rows: pa.Table) -> list[int]:
    return sorted(rows.column("id").to_pylist())


def test_files_into_a_log_table(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    paths = write_files(tmp_path / "in", 3, 2500)
    table = place.table(SCHEMA, buckets=3)
    spec = BulkLoadSpec(LoadSource("parquet", paths), table, new_id(), batch_bytes=4096)
    lines: list[str] = []
    receipt = run_load(spark, spec, place.ref, on_line=lines.append)
    rows = place.rows(table)
    assert ids_of(rows) == list(range(7500))
    assert receipt.rows == 7500
    assert receipt.kind == "bulk_load"
    assert sum(r.count for r in receipt.ranges) == 7500
    assert receipt.details["units"] > 3
    assert "7,500 of 7,500 rows" in "".join(lines)
    again = run_load(spark, spec, place.ref, on_line=quiet)
    assert again == receipt
    assert place.rows(table).num_rows == 7500


def test_a_load_that_stopped_anywhere_goes_on(
    spark: SparkSession,
    place: Place,
    tmp_path: Path,
    new_id: NewId,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver dies after some splits, and again before the end: no row is lost or doubled."""
    from fluss_orchestrate.spark.loading import waves

    paths = write_files(tmp_path / "in", 4, 1500)
    table = place.table(SCHEMA)
    spec = BulkLoadSpec(LoadSource("parquet", paths), table, new_id(), batch_bytes=4096)
    monkeypatch.setattr(waves, "WAVE_SPLITS", 1)
    real, numbers = waves._run_wave, iter(range(100))

    def dies(*given: object) -> object:
        answers = real(*given)  # type: ignore[arg-type]
        if next(numbers) in (1, 2):
            raise KeyboardInterrupt
        return answers

    monkeypatch.setattr(waves, "_run_wave", dies)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_load(spark, spec, place.ref, on_line=quiet)
    receipt = run_load(spark, spec, place.ref, on_line=quiet)
    assert ids_of(place.rows(table)) == list(range(6000))
    assert receipt.rows == 6000
    assert receipt.details["resumed_splits"] == 3


def test_tasks_that_die_after_sending_leave_no_row_twice(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    """Every split's first attempt is lost after its rows were sent, before anybody knows."""
    paths = write_files(tmp_path / "in", 2, 3000)
    table = place.table(SCHEMA)
    spec = BulkLoadSpec(LoadSource("parquet", paths), table, new_id(), batch_bytes=4096)
    from fluss_orchestrate.spark.loading import waves

    real = waves._runner
    flags = tmp_path / "flags"
    flags.mkdir()

    def lossy(task: object, wave: list[object]) -> object:
        inner = real(task, wave)  # type: ignore[arg-type]

        def run(batches: object) -> object:
            import os

            answers = list(inner(batches))  # type: ignore[operator]
            for answer in answers:
                mark = flags / str(answer.column(0)[0].as_py())
                if not mark.exists():
                    mark.touch()
                    os._exit(1)
            yield from answers

        return run

    waves._runner = lossy  # type: ignore[assignment]
    try:
        receipt = run_load(spark, spec, place.ref, on_line=quiet)
    finally:
        waves._runner = real
    assert len(list(flags.iterdir())) == 2
    assert receipt.details["retries"] >= 2
    assert receipt.rows == 6000
    assert ids_of(place.rows(table)) == list(range(6000))


def test_other_rows_under_the_same_id_are_refused(
    spark: SparkSession,
    place: Place,
    tmp_path: Path,
    new_id: NewId,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fluss_orchestrate.spark.loading import waves

    paths = write_files(tmp_path / "in", 1, 500)
    table = place.table(SCHEMA)
    spec = BulkLoadSpec(LoadSource("parquet", paths), table, new_id())

    def dies(*given: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(waves, "_run_wave", dies)
        with pytest.raises(KeyboardInterrupt):
            run_load(spark, spec, place.ref, on_line=quiet)
    write_files(tmp_path / "in", 1, 501)
    with pytest.raises(RowsDifferError, match="other files"):
        run_load(spark, spec, place.ref, on_line=quiet)
    assert place.rows(table).num_rows == 0


def test_key_table_takes_the_last_of_each_key(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    table = place.table(SCHEMA, keys=["id"])
    query = "SELECT id % 100 AS id, CAST(id AS STRING) AS word, id AS at FROM range(5000)"
    spec = BulkLoadSpec(
        LoadSource("query", query=query),
        table,
        new_id(),
        order_by="at",
        staging=str(tmp_path / "staging"),
        batch_bytes=1024,
    )
    receipt = run_load(spark, spec, place.ref, on_line=quiet)
    rows = place.rows(table)
    assert {r["id"]: r["word"] for r in rows.to_pylist()} == {i: str(4900 + i) for i in range(100)}
    assert receipt.rows == 100
    assert receipt.details["staged"] is True
    assert not list((tmp_path / "staging").iterdir()), "what was staged is gone"


def test_csv_with_mapping_transform_and_partitions(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    (tmp_path / "in.csv").write_text("Key,day,amount\n1,2026-01-01,1.50\n2,2026-01-02,\n")
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("amount", pa.decimal128(10, 2))])
    table = place.table(schema, partition_keys=["day"])
    spec = BulkLoadSpec(
        LoadSource("csv", [str(tmp_path / "in.csv")]),
        table,
        new_id(),
        columns={"id": "Key"},
        create_partitions=True,
        staging=str(tmp_path / "staging"),
    )
    receipt = run_load(spark, spec, place.ref, on_line=quiet)
    assert receipt.rows == 2
    found = sorted(place.rows(table).to_pylist(), key=lambda row: row["id"])
    assert [(r["id"], r["day"], r["amount"] and str(r["amount"])) for r in found] == [
        (1, "2026-01-01", "1.50"),
        (2, "2026-01-02", None),
    ]


def test_bad_rows_are_named_or_set_aside(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    """A null where none may be: file and row by default, a dead letter where asked."""
    loose = pa.schema([("id", pa.int64()), ("word", pa.string())])
    ids = [None if i in (700, 701) else i for i in range(1000)]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": ids, "word": ["w"] * 1000}, schema=loose), path)
    table = place.table(SCHEMA)
    source = LoadSource("parquet", [str(path)])
    with pytest.raises(LoadError, match=r"rows\.parquet, row 701: column 'id' is NOT NULL"):
        run_load(spark, BulkLoadSpec(source, table, new_id()), place.ref, on_line=quiet)
    table = place.table(SCHEMA)
    letters = tmp_path / "letters"
    spec = BulkLoadSpec(source, table, new_id(), dead_letter=str(letters))
    receipt = run_load(spark, spec, place.ref, on_line=quiet)
    assert receipt.rows == 998
    assert receipt.details["rejected"] == 2
    kept = pq.read_table(letters).to_pylist()
    assert [letter["row"] for letter in kept] == [701, 702]
    assert json.loads(kept[0]["values"]) == {"id": None, "word": "w"}
    assert place.rows(table).num_rows == 998


def test_a_bad_line_of_a_csv_is_named(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    """Staged or not, it is the user's own file and row that are told."""
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        lines = [f"{i},w{i}" for i in range(100)]
        if name == "b":
            lines[41] = "forty-two,w"
        (tmp_path / "in" / f"{name}.csv").write_text("\n".join(["id,word", *lines]) + "\n")
    source = LoadSource("csv", [str(tmp_path / "in")])
    spec = BulkLoadSpec(source, place.table(SCHEMA), new_id(), staging=str(tmp_path / "staging"))
    with pytest.raises(LoadError, match=r"in/b\.csv, row 42: column 'id' cannot be read") as caught:
        run_load(spark, spec, place.ref, on_line=quiet)
    assert "forty-two" in str(caught.value)


def source_of(kind: str, spark: SparkSession, folder: Path) -> LoadSource:
    """The numbers below 200, in another kind of store."""
    frame = spark.range(200).selectExpr("id", "concat('w', id) AS word").coalesce(1)
    if kind == "jdbc":
        url = f"jdbc:derby:{folder / 'derby'}"
        frame.write.jdbc(f"{url};create=true", "WORDS", "overwrite")
        return LoadSource("jdbc", table="WORDS", options={"url": url})
    if kind == "iceberg":
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": f"file://{folder / 'warehouse'}",
        }
        opened = open_catalog(catalog)
        opened.create_namespace("db")
        opened.create_table("db.words", SCHEMA).append(numbered(200))
        return LoadSource("iceberg", table="db.words", options=catalog)
    frame.write.format(kind).save(str(folder / kind))
    return LoadSource(kind, [str(folder / kind)])


def test_orc_json_jdbc_and_iceberg_sources(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    """Where rows come from has nothing to do with where they go: a cluster gets one kind."""
    embedded = place.address.startswith("embedded")
    for kind in ("orc", "json", "jdbc", "iceberg") if embedded else ("orc",):
        table, source = place.table(SCHEMA), source_of(kind, spark, tmp_path)
        spec = BulkLoadSpec(source, table, new_id(), staging=str(tmp_path / "staging"))
        receipt = run_load(spark, spec, place.ref, on_line=quiet)
        assert receipt.rows == 200, kind
        assert ids_of(place.rows(table)) == list(range(200)), kind
        assert receipt.details["staged"] is (kind != "iceberg")


def test_input_that_cannot_be_loaded_is_refused_before_anything_is_sent(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    table = place.table(SCHEMA)

    def refused(source: LoadSource, into: str = table, order_by: str | None = None) -> str:
        spec = BulkLoadSpec(source, into, new_id(), order_by=order_by, staging=str(tmp_path / "s"))
        with pytest.raises((LoadError, SourceError, RowError)) as caught:
            run_load(spark, spec, place.ref, on_line=quiet)
        return caught.value.message

    def parquet(name: str, **columns: list[object]) -> LoadSource:
        if columns:
            pq.write_table(pa.table(columns), tmp_path / name)
        return LoadSource("parquet", [str(tmp_path / name)])

    said = refused(parquet("wrong.parquet", id=["a"], word=["b"]))
    assert "column 'id' holds int64, not string" in said
    said = refused(parquet("more.parquet", id=[1], other=["b"]))
    assert "does not have: ['other']" in said
    (tmp_path / "no.parquet").write_bytes(b"not parquet at all")
    assert "no.parquet: cannot be read as Parquet" in refused(parquet("no.parquet"))
    assert "gone: there is no such file" in refused(parquet("gone"))
    keyed = place.table(SCHEMA, keys=["id"])
    query = LoadSource("query", query="SELECT 1L AS id, 'a' AS word")
    assert "no column nothing" in refused(query, keyed, "nothing")
    assert place.rows(table).num_rows == 0
