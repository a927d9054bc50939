"""`format("fluss")` writes: append, upsert, delete, partial update, overwrite, and the helper."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import ByteType, LongType, StringType, StructField, StructType

from fluss_client import TablePath
from fluss_client.errors import ChangeTypeError, ConfigError, FlussError, RowError
from fluss_client.testing.launching import HOST, pick
from fluss_orchestrate import IncrementalScan
from fluss_orchestrate.core.loading.errors import LoadError
from fluss_orchestrate.core.loading.units import Placer
from fluss_orchestrate.spark import fast
from fluss_orchestrate.spark import fast as gathering
from fluss_orchestrate.spark.source.datasource import FlussDataSource, register
from fluss_orchestrate.spark.source.options import SourceOptions
from fluss_orchestrate.spark.source.writing import write_job
from tests.spark.conftest import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])
WIDE = pa.schema([*SCHEMA, ("more", pa.string())])
BY_DAY = pa.schema([("id", pa.int64()), ("day", pa.string())])


def save(frame: DataFrame, options: dict[str, str], mode: str = "append") -> None:
    frame.write.format("fluss").options(**options).mode(mode).save()


def found(place: Place, table: str) -> list[dict[str, Any]]:
    return sorted(place.rows(table).to_pylist(), key=lambda row: row["id"])


def test_append_and_the_tuned_helper(spark: SparkSession, place: Place) -> None:
    table = place.table(SCHEMA)
    frame = spark.range(300).selectExpr("id", "concat('w', id) AS word")
    save(frame, place.options(table))
    before = spark.conf.get(fast.ROWS_CONF)
    assert fast.write(frame.selectExpr("id + 300 AS id", "word"), table, place.ref) is None
    assert spark.conf.get(fast.ROWS_CONF) == before, "settings are as before"
    assert [row["id"] for row in found(place, table)] == list(range(600))


def test_rows_of_a_bucket_are_gathered_in_one_task(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On demand, and by default where buckets are many; each task then writes to its own ones."""
    table = place.table(BY_DAY, partition_keys=["day"], buckets=3, bucket_keys=["id"])
    frame = spark.range(0, 600, 1, 4).selectExpr("id", "concat('d', id % 5) AS day")
    options = {"create.partitions": "true"}
    fast.write(frame, table, place.ref, options=options, gather=True)
    fast.write(frame.selectExpr("id + 600 AS id", "day"), table, place.ref)
    monkeypatch.setattr(gathering, "PLACES_MIN", 15)
    fast.write(frame.selectExpr("id + 1200 AS id", "day"), table, place.ref)
    assert [row["id"] for row in found(place, table)] == list(range(1800))

    placed = gathering.gathered(frame, place.connection, table, always=False)
    assert placed.columns == frame.columns
    tasks = collections.defaultdict(set)
    placer = Placer(place.connection.get_table(TablePath.parse(table)).result().get_table_info())
    for task, part in enumerate(placed.rdd.glom().collect()):
        if part:
            rows = pa.RecordBatch.from_pylist([row.asDict() for row in part], BY_DAY)
            for number in placer.numbers(rows).tolist():
                tasks[number].add(task)
    assert len(tasks) == 15
    assert all(len(mine) == 1 for mine in tasks.values())
    log = place.table(SCHEMA)
    by_turn = spark.range(3).selectExpr("id", "'w' AS word")
    assert gathering.gathered(by_turn, place.connection, log, always=True) is by_turn


def test_a_frame_under_a_load_id_is_there_once(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: Callable[[], str]
) -> None:
    table, load_id = place.table(SCHEMA), new_id()
    frame = spark.range(500).selectExpr("id", "'w' AS word")
    for _ in range(2):
        receipt = fast.write(frame, table, place.ref, load_id=load_id, staging=str(tmp_path))
        assert receipt is not None
        assert receipt.rows == 500
    assert [row["id"] for row in found(place, table)] == list(range(500))


@pytest.fixture(scope="module")
def remote(spark: SparkSession) -> Iterator[Any]:
    """A session of a Connect server that runs beside the ordinary session, in its Java."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    port = pick(set())
    jvm: Any = spark._jvm
    conf = spark._jsc.sc().conf()  # type: ignore[union-attr]
    conf.set("spark.connect.grpc.binding.address", HOST)
    conf.set("spark.connect.grpc.binding.port", str(port))
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(spark._jsc.sc())  # type: ignore[union-attr]
    session = ConnectSession.builder.remote(f"sc://{HOST}:{port}").create()
    yield session
    session.stop()
    nothing = jvm.scala.Option.empty()
    service.stop(nothing, nothing)


@pytest.mark.parametrize("fluss_kind", ["embedded"], indirect=True)
def test_a_frame_of_connect_is_loaded_once(
    remote: Any, place: Place, tmp_path: Path, new_id: Callable[[], str]
) -> None:
    register(remote)
    frame = remote.range(200).selectExpr("id", "concat('w', id) AS word")
    table, load_id = place.table(SCHEMA), new_id()
    for _ in range(2):
        receipt = fast.write(frame, table, place.ref, load_id=load_id, staging=str(tmp_path))
        assert receipt is not None
        assert receipt.rows == 200
    assert [row["id"] for row in found(place, table)] == list(range(200))
    keyed = place.table(SCHEMA, keys=["id"])
    twice = frame.selectExpr("id % 50 AS id", "word", "id AS at")
    fast.write(twice, keyed, place.ref, load_id=new_id(), order_by="at", staging=str(tmp_path))
    assert found(place, keyed) == [{"id": i, "word": f"w{150 + i}"} for i in range(50)]


def test_changes_that_were_shuffled_are_written_in_order(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: Callable[[], str]
) -> None:
    source = place.table(SCHEMA, keys=["id"])
    for generation in range(5):
        frame = spark.range(200).selectExpr("id", f"'g{generation}' AS word")
        place.append(source, frame.toArrow().cast(SCHEMA))
    opened = place.connection.get_table(TablePath.parse(source)).result()
    with opened.new_upsert().create_writer() as writer:
        writer.delete({"id": 3})
    golden = [{"id": i, "word": "g4"} for i in range(200) if i != 3]
    read = spark.read.format("fluss").options(**place.options(source, read="changelog"))
    shuffled = read.load().drop("_timestamp").repartition(4)

    plain, loaded = (place.table(SCHEMA, keys=["id"]) for _ in range(2))
    operations = {"operation.column": "_change_type"}
    fast.write(shuffled, plain, place.ref, order_by="_offset", options=operations)
    load: dict[str, Any] = {"load_id": new_id(), "staging": str(tmp_path)}
    with pytest.raises(LoadError, match="order_by"):
        fast.write(shuffled.drop("_offset"), loaded, place.ref, **load)
    fast.write(shuffled, loaded, place.ref, order_by="_offset", **load)
    assert found(place, plain) == found(place, loaded) == golden
    with pytest.raises(ConfigError, match="order_by"):
        fast.write(shuffled, plain, place.ref, gather=True, options=operations)
    with pytest.raises(ConfigError, match="has none"):
        fast.write(shuffled, place.table(SCHEMA), place.ref, order_by="_offset")


def test_upserts_deletes_and_partial_updates(spark: SparkSession, place: Place) -> None:
    table = place.table(WIDE, keys=["id"])
    save(spark.range(5).selectExpr("id", "'a' AS word", "'m' AS more"), place.options(table))
    changes = spark.createDataFrame(
        [(1, "b", "n", "+U"), (2, None, None, "-D"), (3, "x", "y", "-U"), (9, "c", "o", "+I")],
        "id long, word string, more string, op string",
    ).coalesce(1)
    save(changes, place.options(table, operation_column="op"))
    part = spark.createDataFrame([(4, "only")], "id long, word string")
    save(part, place.options(table, partial_update="true"))
    assert [(r["id"], r["word"], r["more"]) for r in found(place, table)] == [
        (0, "a", "m"),
        (1, "b", "n"),
        (3, "a", "m"),
        (4, "only", "m"),
        (9, "c", "o"),
    ]


def test_the_operation_column_takes_every_form_and_nothing_else(place: Place) -> None:
    """As a task of Spark writes its batches."""
    table = place.table(WIDE, keys=["id"])

    def written(options: dict[str, str], **columns: Any) -> int:
        batch = pa.record_batch(columns)
        kinds = {pa.int64(): LongType(), pa.int8(): ByteType(), pa.string(): StringType()}
        schema = StructType([StructField(f.name, kinds[f.type]) for f in batch.schema])
        asked = SourceOptions.of({**place.options(table, operation_column="op"), **options})
        return write_job(asked, schema).run(iter([batch, batch.slice(0, 0)]))

    ids = [1, 2, 3]
    whole = {"id": ids, "word": ["a", "b", "c"], "more": ["m", "n", "o"]}
    written({}, **whole, op=["insert", "+I", "update_after"])
    written({}, **whole, op=pa.array([4, 2, 1], pa.int8()))
    assert [row["id"] for row in found(place, table)] == [2, 3]
    with pytest.raises(ChangeTypeError, match=r"'op' .* row 2, counted from 0: 'D' is not") as bad:
        written({}, **whole, op=["+U", "-D", "D"])
    assert (bad.value.row, bad.value.value) == (2, "D")
    with pytest.raises(RowError, match="row 1, counted from 0, is a delete, and the rows lack"):
        written({"partial.update": "true"}, id=[3, 2], op=["+U", "-D"])
    assert [row["id"] for row in found(place, table)] == [2, 3]


def test_overwrite_drops_and_creates_partitions(spark: SparkSession, place: Place) -> None:
    """Not atomic, and refused while a checkpoint has not read what would go."""
    table = place.table(BY_DAY, partition_keys=["day"])
    options = place.options(table, create_partitions="true")
    save(spark.sql("SELECT id, if(id < 5, 'd1', 'd2') AS day FROM range(10)"), options)
    scan = IncrementalScan(place.connection, table, f"{place.database}-over")
    scan.skip(scan.plan("first"), "begin after what is there")
    save(spark.sql("SELECT 50L AS id, 'd1' AS day"), options)
    new = spark.sql("SELECT id + 100 AS id, 'd1' AS day FROM range(3)")
    with pytest.raises(PySparkException, match="nothing was dropped"):
        save(new, place.options(table, partition="day=d1"), "overwrite")
    assert len(found(place, table)) == 11
    forced = place.options(table, partition="day=d1", overwrite_force="true")
    save(new, forced, "overwrite")
    assert [row["id"] for row in found(place, table)] == [5, 6, 7, 8, 9, 100, 101, 102]
    with pytest.raises(PySparkException, match="name them by option"):
        save(new, place.options(table), "overwrite")


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("id long", {}, r"lacks \['word'\]"),
        ("id long, word string, x integer", {}, r"has \['x'\], which the table has not"),
        ("id string, word string", {}, "column 'id' holds int64, not string"),
        ("id long, word string", {"partial_update": "true"}, "needs a primary key"),
        ("id long, word string", {"operation_column": "op"}, "must be a column"),
    ],
)
def test_frames_that_do_not_fit_are_refused(
    place: Place, plain: str, columns: str, options: dict[str, str], said: str
) -> None:
    """As Spark asks for the writer, before a task runs."""
    struct = StructType()
    for column in columns.split(", "):
        struct = struct.add(*column.split(" "))
    with pytest.raises(FlussError, match=said):
        FlussDataSource(place.options(plain, **options)).writer(struct, False)


def test_a_null_where_none_may_be_fails_the_write(
    spark: SparkSession, place: Place, plain: str
) -> None:
    with pytest.raises(PySparkException, match="NOT NULL"):
        save(spark.sql("SELECT CAST(NULL AS LONG) AS id, 'a' AS word"), place.options(plain))
    assert place.rows(plain).num_rows == 0


@pytest.fixture(scope="module")
def plain(place: Place) -> str:
    """A log table without rows."""
    return place.table(SCHEMA)
