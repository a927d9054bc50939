"""`format("fluss")` reads what the client reads: every mode, range, type and split."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from fluss_client import TablePath
from fluss_client.errors import ConfigError, FlussError
from fluss_orchestrate import IncrementalScan
from fluss_orchestrate.core.errors import SparkSetupError
from fluss_orchestrate.spark import fast
from fluss_orchestrate.spark.errors import FrameChangedError
from fluss_orchestrate.spark.fast import read_plan
from fluss_orchestrate.spark.source import datasource, planning
from fluss_orchestrate.spark.source.datasource import FlussDataSource
from fluss_orchestrate.spark.source.parts import parts_of
from fluss_orchestrate.spark.source.types import arrow_schema
from tests.orchestrate.incremental.events import once_final
from tests.spark.conftest import Place
from tests.waiting import moment_between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])
NESTED = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("amount", pa.decimal128(20, 3)),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("four", pa.binary(4)),
        ("day", pa.date32()),
        ("at_time", pa.time32("ms")),
        ("ntz", pa.timestamp("ns")),
        ("ltz", pa.timestamp("ms", "UTC")),
        ("items", pa.list_(pa.int64())),
        ("tags", pa.map_(pa.string(), pa.int32())),
        ("place", pa.struct([("x", pa.int32()), ("when", pa.timestamp("ms"))])),
    ]
)
DAY = dt.date(2026, 2, 3)
MOMENT = dt.datetime(2026, 2, 3, 4, 5, 6, 789000)
ROW = {
    "id": 1,
    "flag": True,
    "tiny": -3,
    "small": 300,
    "f": 0.5,
    "d": 0.25,
    "amount": decimal.Decimal("12345.678"),
    "text": "naïve",
    "raw": b"\x00\x01",
    "four": b"abcd",
    "day": DAY,
    "at_time": dt.time(1, 2, 3, 4000),
    "ntz": MOMENT,
    "ltz": MOMENT.replace(tzinfo=dt.UTC),
    "items": [1, None, 3],
    "tags": [("a", 1), ("b", None)],
    "place": {"x": 7, "when": MOMENT},
}


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("fluss").options(**options).load()


def direct(options: dict[str, str], schema: StructType | None = None) -> list[list[int]]:
    """The ids of each Spark partition, read as a worker does it but without Spark around."""
    source = FlussDataSource(options)
    reader = pickle.loads(pickle.dumps(source.reader(schema or source.schema())))
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    return [
        [i for batch in reader.read(partition) for i in batch.column("id").to_pylist()]
        for partition in partitions
    ]


def flat(parts: list[list[int]]) -> list[int]:
    return sorted(i for part in parts for i in part)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def words(first: int, count: int) -> pa.Table:
    return pa.table(
        {"id": range(first, first + count), "word": [f"w{i}" for i in range(first, first + count)]},
        schema=SCHEMA,
    )


def test_a_log_table_in_every_way(spark: SparkSession, place: Place) -> None:
    table = place.table(SCHEMA, buckets=3)
    place.append(table, words(0, 400))
    place.append(table, words(400, 300))
    frame = read(spark, place.options(table))
    golden = sorted(place.rows(table).to_pylist(), key=lambda row: row["id"])
    assert [r.asDict() for r in frame.orderBy("id").collect()] == golden
    assert frame.filter("id = 5").count() == 1
    assert frame.count() == 700, "a filter leaves other queries alone"

    chosen = place.options(table, filter="id >= 15 and (word like 'w1%' or word = 'w690')")
    narrow = spark.read.format("fluss").options(**chosen).schema("id bigint").load()
    assert narrow.columns == ["id"]
    golden_ids = [i for i in range(15, 700) if str(i).startswith("1") or i == 690]
    assert ids(narrow) == golden_ids, "a filter may look at columns that are not read"
    split = read(spark, place.options(table, read="log", split_records="50"))
    assert split.rdd.getNumPartitions() == 14
    assert ids(split) == list(range(700))

    meta = read(spark, place.options(table, metadata="all")).collect()
    assert len({(row._bucket, row._offset) for row in meta}) == 700
    assert {row._change_type for row in meta} == {"+A"}
    assert flat(direct(place.options(table, read="log", filter="_offset < 3"))) == sorted(
        row.id for row in meta if row._offset < 3
    )
    bucket = meta[0]._bucket
    tail = place.options(table, metadata="_offset", start=json.dumps({bucket: 5}))
    rest = [row for row in meta if row._bucket != bucket or row._offset >= 5]
    assert flat(direct(tail)) == sorted(row.id for row in rest)


def test_columns_limits_and_splits(place: Place) -> None:
    table = place.table(SCHEMA, buckets=3)
    place.append(table, words(0, 400))
    place.append(table, words(400, 300))
    assert FlussDataSource(place.options(table, columns="word")).schema().names == ["word"]
    everything = list(range(700))
    assert flat(direct(place.options(table))) == everything
    assert len(flat(direct(place.options(table, limit="37", read="log")))) == 37
    chosen = place.options(table, filter="id >= 600", limit="20")
    assert len(set(flat(direct(chosen))) & set(range(600, 700))) == 20
    assert flat(direct(place.options(table, start="latest"))) == []
    by_bytes = direct(place.options(table, read="log", split_bytes="2000"))
    assert flat(by_bytes) == everything
    assert 5 < len(by_bytes) < 12, "a row takes 8 bytes, and 4 + 4 of text"
    assert len(direct(place.options(table, read="log", split_count="5"))) == 5
    keyed = place.table(SCHEMA, keys=["id"], buckets=3)
    place.append(keyed, words(0, 100))
    assert len(flat(direct(place.options(keyed, limit="60")))) == 60, "over all buckets"


def test_a_limit_goes_to_the_servers(place: Place) -> None:
    """A filter needs the whole bucket, which no server is asked for at once."""
    keyed = place.table(SCHEMA, keys=["id"], buckets=1)
    place.append(keyed, words(0, 100))
    bounded = place.options(keyed, limit="60") | {"client.scanner.limit.rows-max": "60"}
    assert len(set(flat(direct(bounded)))) == 60
    assert len(set(flat(direct(bounded | {"filter": "id >= 30"})))) >= 60
    del bounded["limit"]
    assert len(set(flat(direct(bounded)))) == 100


def test_a_time_window(spark: SparkSession, place: Place) -> None:
    table = place.table(SCHEMA, buckets=1)
    place.append(table, words(0, 10))
    middle = moment_between()
    place.append(table, words(10, 10))
    until = place.options(table, until=str(middle))
    assert once_final(lambda: flat(direct(until))) == list(range(10))
    stamp = dt.datetime.fromtimestamp(middle / 1000, dt.UTC).isoformat()
    late = {**place.options(table), "scan.incremental.start.timestamp": stamp}
    assert ids(read(spark, late)) == list(range(10, 20))


def test_a_key_table_now_and_its_changes(spark: SparkSession, place: Place) -> None:
    table = place.table(SCHEMA, keys=["id"])
    place.append(table, words(0, 100))
    place.append(table, pa.table({"id": [7], "word": ["new"]}, schema=SCHEMA))
    opened = place.connection.get_table(TablePath.parse(table)).result()
    with opened.new_upsert().create_writer() as writer:
        writer.delete({"id": 8})
    now = {row.id: row.word for row in read(spark, place.options(table)).collect()}
    golden = {row["id"]: row["word"] for row in place.rows(table).to_pylist()}
    assert now == golden
    assert now[7] == "new"
    assert 8 not in now
    assert flat(direct(place.options(table, filter="word = 'new' or id = 8"))) == [7]
    changes = read(spark, place.options(table, read="changelog"))
    assert changes.columns == ["id", "word", "_change_type", "_offset", "_timestamp"]
    seven = changes.filter("id = 7").orderBy("_offset").collect()
    assert [(r.word, r._change_type) for r in seven] == [("w7", "+I"), ("w7", "-U"), ("new", "+U")]
    assert [r._change_type for r in changes.filter("id = 8").orderBy("_offset").collect()] == [
        "+I",
        "-D",
    ]


def change_keys(place: Place, table: str) -> None:
    """An update, an insert and two deletes in a table of `words(0, 100)`."""
    place.append(table, pa.table({"id": [7, 500], "word": ["new", "more"]}, schema=SCHEMA))
    opened = place.connection.get_table(TablePath.parse(table)).result()
    with opened.new_upsert().create_writer() as writer:
        writer.delete({"id": 8})
        writer.delete({"id": 500})


def test_a_frame_of_a_key_table_stays_as_it_was(spark: SparkSession, place: Place) -> None:
    table = place.table(SCHEMA, keys=["id"])
    place.append(table, words(0, 100))
    frame = read(spark, place.options(table))
    before = frame.orderBy("id").collect()
    change_keys(place, table)
    assert frame.orderBy("id").collect() == before
    assert before == [(i, f"w{i}") for i in range(100)]
    assert ids(read(spark, place.options(table))) == [i for i in range(100) if i != 8]


def test_without_old_rows_a_changed_key_table_is_an_error(place: Place) -> None:
    """The changelog of a WAL image cannot tell what a row was."""
    table = place.table(SCHEMA, keys=["id"], properties={"table.changelog.image": "WAL"})
    place.append(table, words(0, 100))
    source = FlussDataSource(place.options(table))
    reader = source.reader(source.schema())
    partitions = reader.partitions()

    def found() -> list[int]:
        batches = [batch for partition in partitions for batch in reader.read(partition)]
        return sorted(i for batch in batches for i in batch.column("id").to_pylist())

    assert found() == found() == list(range(100))
    change_keys(place, table)
    try:
        again = found()
    except FrameChangedError as error:
        assert "load() again" in str(error)  # noqa: PT017 (either outcome is right)
    else:
        assert again == list(range(100))


@pytest.mark.parametrize("keys", [None, ["id"]])
def test_a_frame_is_planned_at_load_where_spark_would_plan_it_anew(
    place: Place, monkeypatch: pytest.MonkeyPatch, keys: list[str] | None
) -> None:
    """Spark 4.0 pickles the source after `schema()`, and asks for partitions at every action."""
    monkeypatch.setattr(datasource, "PLANS_ONCE", False)
    table = place.table(SCHEMA, keys=keys)
    place.append(table, words(0, 50))
    source = FlussDataSource(place.options(table))
    schema = source.schema()
    loaded = pickle.dumps(source)

    def action() -> list[int]:
        reader = pickle.loads(loaded).reader(schema)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return sorted(i for batch in batches for i in batch.column("id").to_pylist())

    assert action() == list(range(50))
    place.append(table, words(50, 10))
    assert action() == list(range(50))
    with pytest.raises(SparkSetupError, match="option\\('columns'"):
        FlussDataSource(place.options(table)).reader(schema)


def test_a_bucket_of_a_changelog_is_never_cut(place: Place) -> None:
    """Parallel tasks would lose the order of a key's changes."""
    table = place.table(SCHEMA, keys=["id"], buckets=3)
    for _ in range(4):
        place.append(table, words(0, 60))
    plan = IncrementalScan(place.connection, table, f"{place.database}-whole").plan("run-1")
    with_plan = {"bootstrap.servers": place.address, "plan": json.dumps(plan.to_json())}
    for options in (place.options(table, read="changelog"), with_plan):
        source = FlussDataSource({**options, "split.count": "12"})
        partitions = source.reader(source.schema()).partitions()
        places = [r.place for p in partitions for part in parts_of(p) for r in part.plan.ranges]
        assert sorted(places) == [(None, 0), (None, 1), (None, 2)]
    records = FlussDataSource(place.options(table, read="changelog", split_records="10"))
    assert len(records.reader(records.schema()).partitions()) == 3


def test_partitions_are_chosen_by_option(spark: SparkSession, place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("region", pa.string())])
    table = place.table(schema, partition_keys=["day", "region"])
    admin = place.connection.get_admin().result()
    rows: list[dict[str, Any]] = []
    for number, (day, region) in enumerate([("d1", "eu"), ("d1", "us"), ("d2", "eu")]):
        spec = {"day": day, "region": region}
        admin.create_partition(TablePath.parse(table), spec).result()
        rows += [{"id": number * 10 + i, **spec} for i in range(10)]
    place.append(table, pa.Table.from_pylist(rows, schema))
    assert flat(direct(place.options(table, partition="day=d1"))) == list(range(20))
    two = place.options(table, partition="day=d2; day=d1,region=us", metadata="_partition")
    found = read(spark, two).collect()
    assert sorted(row.id for row in found) == list(range(10, 30))
    assert {row._partition for row in found} == {"d1$us", "d2$eu"}


def test_every_type_comes_through(spark: SparkSession, place: Place) -> None:
    table = place.table(NESTED, keys=["id"] if place.address.startswith("embedded") else None)
    empty = dict.fromkeys(NESTED.names)
    place.append(table, pa.Table.from_pylist([ROW, {**empty, "id": 2}], NESTED))
    frame = read(spark, place.options(table))
    assert arrow_schema(frame.schema).equals(to_arrow_schema(frame.schema, timezone="UTC"))
    first, second = frame.orderBy("id").collect()
    shown = {
        **ROW,
        "at_time": ((60 + 2) * 60 + 3) * 1_000_000 + 4000,
        "tags": dict(ROW["tags"]),  # type: ignore[call-overload]
        "ltz": MOMENT,  # the session's zone is UTC, and Spark gives times without it
        "raw": bytearray(b"\x00\x01"),
        "four": bytearray(b"abcd"),
    }
    assert first.asDict(recursive=True) == shown
    assert second.asDict() == {**empty, "id": 2}


def test_a_plan_is_read_exactly(spark: SparkSession, place: Place) -> None:
    table = place.table(SCHEMA, buckets=2)
    place.append(table, words(0, 500))
    scan = IncrementalScan(
        place.connection, table, f"{place.database}-plan", metadata_columns=["_offset", "_bucket"]
    )
    plan = scan.plan("run-1")
    place.append(table, words(500, 100))
    golden = (
        scan.read(plan).read_all().sort_by([("_bucket", "ascending"), ("_offset", "ascending")])
    )
    option = {"bootstrap.servers": place.address, "plan": json.dumps(plan.to_json())}
    for frame in (read(spark, option), read_plan(spark, plan, place.ref, parts=3)):
        found = frame.orderBy("_bucket", "_offset").toArrow()
        assert found.column("id").to_pylist() == golden.column("id").to_pylist()
        assert found.schema.names == golden.schema.names
    few = read_plan(spark, plan, place.ref, parts=3, row_filter="id < 4")
    assert few.rdd.getNumPartitions() == 3
    assert ids(few) == [0, 1, 2, 3]


def test_python_workers_read_what_the_format_reads(spark: SparkSession, place: Place) -> None:
    log = place.table(SCHEMA, buckets=3)
    place.append(log, words(0, 300))
    keys = place.table(SCHEMA, keys=["id"], buckets=2)
    place.append(keys, words(0, 100))
    place.append(keys, words(50, 100))

    whole = fast.read(spark, log, place.ref)
    place.append(log, words(300, 5))
    assert ids(whole) == list(range(300)), "every action reads what was there"
    one = fast.read(spark, log, place.ref, columns=["word"], options={"filter": "id < 3"})
    assert sorted(row.word for row in one.collect()) == ["w0", "w1", "w2"]
    counted = fast.read(spark, log, place.ref, columns=[])
    assert (counted.columns, counted.count()) == ([], 305)
    assert fast.read(spark, log, place.ref, options={"limit": "7"}).count() == 7
    assert ids(fast.read(spark, keys, place.ref)) == list(range(150))
    changes = fast.read(spark, keys, place.ref, options={"read": "changelog"})
    kinds = changes.groupBy("_change_type").count().collect()
    assert {row._change_type: row["count"] for row in kinds} == {"+I": 150, "-U": 50, "+U": 50}
    with pytest.raises(ConfigError, match="no column 'wrod'"):
        fast.read(spark, log, place.ref, columns=["wrod"])
    with pytest.raises(ConfigError, match="the columns once"):
        fast.read(spark, log, place.ref, columns=["id"], options={"columns": "id"})


def test_the_default_split_is_by_bytes_and_by_what_runs_at_once(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.table(SCHEMA, buckets=4)
    place.append(table, words(0, 4000))

    def partitions() -> int:
        return fast.read(spark, table, place.ref).rdd.getNumPartitions()

    assert partitions() == 1, "little is read by one task, whatever the number of buckets"
    monkeypatch.setattr(planning, "SPLIT_BYTES_MIN", 1 << 10)
    assert partitions() == spark.sparkContext.defaultParallelism
    monkeypatch.setattr(planning, "SPLIT_BYTES_MAX", 8 << 10)
    assert 8 <= partitions() <= 16, "4,000 rows of about 20 bytes"
    assert ids(fast.read(spark, table, place.ref)) == list(range(4000))


def test_sql_over_a_view(spark: SparkSession, place: Place) -> None:
    table = place.table(SCHEMA)
    place.append(table, words(0, 20))
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW fluss_words USING fluss OPTIONS "
        f"(`bootstrap.servers` '{place.address}', table '{table}')"
    )
    assert spark.sql("SELECT max(id) FROM fluss_words WHERE word LIKE 'w1%'").first()[0] == 19
    spark.sql("INSERT INTO fluss_words SELECT id + 20, 'more' FROM range(5)")
    assert place.rows(table).num_rows == 25


def test_tables_of_sparks_catalog_are_refused(spark: SparkSession, place: Place) -> None:
    """Spark keeps the options of such a table to itself."""
    options = f"OPTIONS (`bootstrap.servers` '{place.address}', table '{place.table(SCHEMA)}')"
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE fluss_made USING fluss {options}")
    # With columns Spark asks nobody before the first query.
    spark.sql(f"CREATE TABLE fluss_made (id BIGINT, word STRING) USING fluss {options}")
    try:
        for query in ("SELECT * FROM fluss_made", "INSERT INTO fluss_made VALUES (1, 'a')"):
            with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
                spark.sql(query).collect()
    finally:
        spark.sql("DROP TABLE fluss_made")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tabel": "x"}, "did you mean table"),
        ({"read": "everything"}, "read is one of"),
        ({"read": "changelog"}, "has no primary key"),
        ({"metadata": "_colour"}, "metadata is some of"),
        ({"start": "2026-01-01"}, "has no zone"),
        ({"start": "20", "until": "10"}, "before it starts"),
        ({"partition": "day=1"}, "is partitioned by"),
        ({"columns": "nothing"}, "nothing"),
        ({"client.security.sasl.password": "hunter-2"}, "is a secret and must not travel"),
        ({"table": "no.where"}, "no.where"),
        ({"filter": "id >"}, "filter 'id >'"),
        ({"filter": "nothing = 1"}, "no column 'nothing'"),
        ({"filter": "word > 5"}, "cannot be compared"),
        ({"filter": "_offset > 5"}, "no column '_offset'"),
        ({"read": "log", "split.bytes": "9", "split.count": "2"}, "only one of"),
    ],
)
def test_options_that_cannot_be_meant(
    place: Place, plain: str, options: dict[str, str], said: str
) -> None:
    """As Spark asks for the schema and the partitions, and without Spark around it."""
    source = FlussDataSource({**place.options(plain), **options})
    with pytest.raises(FlussError) as caught:
        source.reader(source.schema()).partitions()
    assert said in str(caught.value)
    assert "hunter-2" not in str(caught.value)


@pytest.fixture(scope="module")
def plain(place: Place) -> str:
    """A log table without rows."""
    return place.table(SCHEMA)


def test_what_is_wrong_is_said_through_spark(spark: SparkSession, place: Place) -> None:
    with pytest.raises(PySparkException, match=r"no\.where"):
        read(spark, place.options("no.where")).collect()
