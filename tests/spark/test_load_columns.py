"""Bulk loads and the columns of a key table: those that the input lacks, or that were added."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.loading.errors import LoadError, RowsDifferError
from fluss_orchestrate.core.loading.ledger import finished_receipt, open_ledger
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource
from fluss_orchestrate.spark.loading import waves
from fluss_orchestrate.spark.loading.load import run_load
from fluss_orchestrate.spark.loading.places import list_files
from fluss_orchestrate.spark.loading.splits import digest_of_input
from tests.spark.conftest import Place
from tests.spark.test_bulk_load import quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NewId = Callable[[], str]
GOLDEN = Path(__file__).parent / "golden" / "bulk-load-69c611a.json"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("word", pa.string()),
        pa.field("more", pa.string()),
    ]
)


def spec_of(path: Path, table: str, load_id: str, **more: Any) -> BulkLoadSpec:
    return BulkLoadSpec(LoadSource("parquet", [str(path)]), table, load_id, **more)


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def state(place: Place, table: str) -> dict[int, tuple[Any, Any]]:
    return {r["id"]: (r["word"], r["more"]) for r in place.rows(table).to_pylist()}


def add_column(place: Place, table: str) -> None:
    admin = place.connection.get_admin().result()
    added = [pa.field("added", pa.string())]
    admin.alter_table(TablePath.parse(table), add_columns=added).result()


def test_columns_that_the_input_lacks_keep_their_values(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    table = place.table(SCHEMA, keys=["id"])
    old = {"id": [1, 2, 3], "word": ["a", "b", "c"], "more": ["m", "n", "o"]}
    place.append(table, pa.table(old, schema=SCHEMA))
    part = parquet(tmp_path / "part.parquet", id=[1, 4], word=["x", "y"])
    run_load(spark, spec_of(part, table, new_id()), place.ref, on_line=quiet)
    whole = {"id": [2, 3], "word": ["z", None], "more": ["p", None]}
    kinds = {"_change_type": ["update_after", "delete"]}
    changes = parquet(tmp_path / "changes.parquet", **whole, **kinds)
    run_load(spark, spec_of(changes, table, new_id(), order_by="id"), place.ref, on_line=quiet)
    assert state(place, table) == {1: ("x", "m"), 2: ("z", "p"), 4: ("y", None)}

    bad = {"_change_type": ["+U", "D"]}
    unknown = parquet(tmp_path / "unknown.parquet", **whole, **bad)
    with pytest.raises(LoadError, match=r"unknown.parquet.* holds 'D', which is not"):
        run_load(spark, spec_of(unknown, table, new_id(), order_by="id"), place.ref, on_line=quiet)
    lacking = parquet(tmp_path / "lacking.parquet", id=[1], _change_type=["-D"])
    with pytest.raises(LoadError, match=r"lacking.parquet.* lack word, more"):
        run_load(spark, spec_of(lacking, table, new_id(), order_by="id"), place.ref, on_line=quiet)
    assert state(place, table) == {1: ("x", "m"), 2: ("z", "p"), 4: ("y", None)}


def test_a_load_keeps_its_columns(
    spark: SparkSession,
    place: Place,
    tmp_path: Path,
    new_id: NewId,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Columns that are added do not become part of it, and its mapping cannot change."""
    table, load_id = place.table(SCHEMA, keys=["id"]), new_id()
    file = parquet(tmp_path / "in.parquet", id=[1, 2], added=["a", "b"], other=["x", "y"])
    spec = spec_of(file, table, load_id, columns={"word": "added", "more": "other"})

    def dies(*given: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(waves, "_run_wave", dies)
        with pytest.raises(KeyboardInterrupt):
            run_load(spark, spec, place.ref, on_line=quiet)
    add_column(place, table)
    swapped = spec_of(file, table, load_id, columns={"word": "other", "more": "added"})
    with pytest.raises(RowsDifferError, match="column more came from other and comes from added"):
        run_load(spark, swapped, place.ref, on_line=quiet)
    assert run_load(spark, spec, place.ref, on_line=quiet).rows == 2
    assert state(place, table) == {1: ("a", "x"), 2: ("b", "y")}
    assert place.rows(table).column("added").to_pylist() == [None, None]


def test_a_load_that_69c611a_has_begun_goes_on(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: NewId
) -> None:
    table, load_id = place.table(SCHEMA, keys=["id"]), new_id()
    old = {"id": range(600), "word": ["old"] * 600, "more": ["m"] * 600}
    place.append(table, pa.table(old, schema=SCHEMA))
    paths = []
    for number in range(2):
        ids = range(number * 300, number * 300 + 300)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "word": [f"w{i}" for i in range(300)]})
        paths.append(str(tmp_path / f"part-{number}.parquet"))
        pq.write_table(rows, paths[-1], row_group_size=100)
    done = place.table(SCHEMA, keys=["id"])
    put_golden(place, done, load_id, tmp_path, paths, finished=True)
    receipt = finished_receipt(place.connection, done, load_id)
    assert receipt is not None
    assert receipt.rows == 600

    put_golden(place, table, load_id, tmp_path, paths, finished=False)
    add_column(place, table)
    spec = BulkLoadSpec(LoadSource("parquet", paths), table, load_id)
    receipt = run_load(spark, spec, place.ref, on_line=quiet)
    assert (receipt.rows, receipt.details["resumed_splits"]) == (600, 1)
    found = state(place, table)
    assert found[0] == ("old", "m"), "the ledger says that the first split is there"
    assert {found[key] for key in range(300, 600)} == {(f"w{i}", "m") for i in range(300)}


def put_golden(
    place: Place, table: str, load_id: str, folder: Path, paths: list[str], finished: bool
) -> None:
    """What the commit has recorded of a load, for this table and these files."""
    path = TablePath.parse(table)
    info = place.connection.get_admin().result().get_table_info(path).result()
    ledger = open_ledger(place.connection)
    stored = json.loads(GOLDEN.read_text().replace("FOLDER", str(folder)))
    for row in stored["rows"]:
        body, seq, of_split = row["body"], row["seq"], row["of"] == "split done"
        if not finished and (seq == 1):
            continue  # neither the receipt nor the second split
        if "digest" in body:
            body["digest"] = digest_of_input(list_files(paths))
        if "writer_ids" in body:
            ids = [runtime().call(place.connection.core.backend.init_writer([path]))]
            body["writer_ids"] = ids
        made = {
            "name": f"bulk/{info.table_id}/{load_id}{'#done' if of_split else ''}",
            "seq": seq,
            "kind": "bulk",
            "plan_id": load_id,
            "created_ms": now_ms(),
            "body": json.dumps(body).encode(),
        }
        runtime().call(ledger.put([made]))
