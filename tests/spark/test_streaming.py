"""Streams: restarts, new partitions, limits and AvailableNow; each row once into the sink."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fluss_client import TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.errors import SparkSetupError, TableIdentityChangedError
from fluss_orchestrate.spark.fast import exactly_once_batches
from fluss_orchestrate.spark.source import streaming, writing
from fluss_orchestrate.spark.source.datasource import FlussDataSource
from fluss_orchestrate.spark.source.parts import parts_of
from fluss_orchestrate.spark.source.writing import BatchLedger
from tests.spark.conftest import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string())])


def rows(first: int, count: int, day: str) -> pa.Table:
    return pa.table({"id": range(first, first + count), "day": [day] * count}, schema=SCHEMA)


def partitioned(place: Place, buckets: int = 2) -> str:
    return place.table(SCHEMA, buckets=buckets, partition_keys=["day"])


def add_day(place: Place, table: str, day: str) -> None:
    admin = place.connection.get_admin().result()
    admin.create_partition(TablePath.parse(table), {"day": day}).result()


def stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("fluss").options(**options).load()


def run(writer: Any, checkpoint: Path) -> Any:
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(100)
    assert query.exception() is None
    return query


def ids(place: Place, table: str) -> list[int]:
    return sorted(place.rows(table).column("id").to_pylist())


def test_from_table_to_table_with_restarts_and_new_partitions(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: Callable[[], str]
) -> None:
    """A log table into a log table, each row once, by loads named after their micro-batches."""
    source, target = partitioned(place, buckets=1), place.table(SCHEMA)
    add_day(place, source, "d1")
    for first in (0, 40):
        place.append(source, rows(first, 40, "d1"))
    name = new_id()
    take = exactly_once_batches(target, place.ref, name, staging=str(tmp_path / "staging"))
    options = place.options(source, max_rows_per_trigger="40")
    query = run(stream(spark, options).writeStream.foreachBatch(take), tmp_path / "checkpoint")
    assert ids(place, target) == list(range(80))
    assert len([p for p in query.recentProgress if p["numInputRows"]]) > 1

    # The last batch comes again, as after a crash before its checkpoint was written; after it the
    # rows of a partition that is new.
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    for file in (newest, newest.with_name(f".{newest.name}.crc")):
        file.unlink(missing_ok=True)
    add_day(place, source, "d2")
    place.append(source, rows(80, 20, "d2"))
    run(stream(spark, options).writeStream.foreachBatch(take), tmp_path / "checkpoint")
    assert ids(place, target) == list(range(100))


def test_a_stream_written_by_format_repeats_no_finished_batch(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    source, target = place.table(SCHEMA), place.table(SCHEMA)
    place.append(source, rows(0, 100, "x"))
    checkpoint = tmp_path / "checkpoint"

    def once() -> None:
        chosen = place.options(source, filter="id <> 7")
        writer = stream(spark, chosen).writeStream.format("fluss")
        run(writer.options(**place.options(target)), checkpoint)

    golden = [i for i in range(100) if i != 7]
    once()
    assert ids(place, target) == golden
    for file in (checkpoint / "commits").iterdir():
        file.unlink()
    once()
    assert ids(place, target) == golden


def test_a_stream_of_changes_keeps_the_order_of_each_key(
    spark: SparkSession, place: Place, tmp_path: Path, new_id: Callable[[], str]
) -> None:
    """Deletes and many updates of each key, written in both ways."""
    source = place.table(SCHEMA, keys=["id"], buckets=1)
    for generation in range(6):
        place.append(source, rows(0, 300, f"g{generation}"))
    opened = place.connection.get_table(TablePath.parse(source)).result()
    with opened.new_upsert().create_writer() as writer:
        for number in range(10):
            writer.delete({"id": number})
    golden = [{"id": number, "day": "g5"} for number in range(10, 300)]

    by_format, by_loads = (place.table(SCHEMA, keys=["id"]) for _ in range(2))
    chosen = place.options(source, metadata="_change_type", split_count="8")
    changes = stream(spark, chosen).writeStream.format("fluss")
    target = place.options(by_format, operation_column="_change_type")
    run(changes.options(**target), tmp_path / "format")
    take = exactly_once_batches(
        by_loads, place.ref, new_id(), staging=str(tmp_path / "staging"), order_by="_offset"
    )
    chosen = place.options(source, metadata="_change_type,_offset")
    run(stream(spark, chosen).writeStream.foreachBatch(take), tmp_path / "loads")
    for table in (by_format, by_loads):
        assert place.rows(table).sort_by("id").to_pylist() == golden


class TestReader:
    """The reader by itself, as Spark's driver asks it."""

    def reader(self, place: Place, table: str, **options: str) -> Any:
        source = FlussDataSource(place.options(table, **options))
        return source.streamReader(source.schema())

    def read(self, reader: Any, start: Any, end: Any) -> list[int]:
        found = []
        for partition in reader.partitions(start, end):
            for batch in reader.read(partition):
                found += batch.column("id").to_pylist()
        return sorted(found)

    def test_starts_ends_and_new_partitions(self, place: Place) -> None:
        table = partitioned(place)
        add_day(place, table, "d1")
        place.append(table, rows(0, 50, "d1"))
        reader = self.reader(place, table)
        begin = reader.initialOffset()
        assert set(begin["offsets"].values()) == {0}
        end = reader.latestOffset(begin, reader.getDefaultReadLimit())
        assert self.read(reader, begin, end) == list(range(50))
        late = self.reader(place, table, start="latest")
        assert late.initialOffset() == end
        add_day(place, table, "d2")
        place.append(table, rows(50, 50, "d2"))
        more = reader.latestOffset(end, reader.getDefaultReadLimit())
        assert len(more["offsets"]) == 4
        assert self.read(reader, end, more) == list(range(50, 100))
        assert self.read(reader, begin, more) == list(range(100)), "the same whenever it is asked"
        assert reader.reportLatestOffset() == more
        frozen = self.reader(place, table)
        frozen.prepareForTriggerAvailableNow()
        place.append(table, rows(100, 10, "d2"))
        assert frozen.latestOffset(end, frozen.getDefaultReadLimit()) == more
        other = {**end, "table_id": end["table_id"] + 1000}
        with pytest.raises(TableIdentityChangedError):
            reader.latestOffset(other, reader.getDefaultReadLimit())

    def test_a_trigger_takes_so_many_bytes(self, place: Place) -> None:
        """By what a sample of the rows weighs; the next offsets go on, and nothing is left out."""
        table = place.table(SCHEMA, buckets=1)
        for first in range(0, 400, 50):
            place.append(table, rows(first, 50, "x" * 100))
        reader = self.reader(place, table, max_bytes_per_trigger="4000", filter="id >= 10")
        at, batches = reader.initialOffset(), []
        while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            batches.append(self.read(reader, at, end))
            at = end
        assert [i for batch in batches for i in batch] == list(range(10, 400))
        assert len(batches) > 3, "several triggers, each with whole batches of the log"
        both = self.reader(place, table, max_bytes_per_trigger="1", max_rows_per_trigger="1")
        with pytest.raises(ConfigError, match="not both"):
            both.getDefaultReadLimit()

    def test_a_trigger_takes_so_many_rows(self, place: Place) -> None:
        """Batches of the log are cut; every bucket gets its share."""
        table = place.table(SCHEMA, buckets=4, bucket_keys=["id"])
        place.append(table, rows(0, 400, "x"))
        reader = self.reader(place, table, max_rows_per_trigger="30")
        batches = self.all_batches(reader)
        assert max(len(batch) for batch in batches) <= 30
        assert sorted(i for batch in batches for i in batch) == list(range(400))

    @pytest.mark.parametrize(("limit", "most"), [(7, 7), (1, 2)])
    def test_the_two_rows_of_an_update_stay_together(
        self, place: Place, limit: int, most: int
    ) -> None:
        """A limit is passed by one row only where an update would not fit at all."""
        table = place.table(SCHEMA, keys=["id"], buckets=1)
        place.append(table, rows(0, 10, "x"))
        place.append(table, rows(0, 10, "y"))
        reader = self.reader(place, table, metadata="_change_type", max_rows_per_trigger=str(limit))
        batches = self.all_batches(reader, "_change_type")
        assert max(len(batch) for batch in batches) <= most
        assert all(batch.count("-U") == batch.count("+U") for batch in batches)
        changes = [change for batch in batches for change in batch]
        assert sorted(changes) == ["+I"] * 10 + ["+U"] * 10 + ["-U"] * 10

    def all_batches(self, reader: Any, column: str = "id") -> list[list[Any]]:
        at, batches = reader.initialOffset(), []
        while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            read = [b for part in reader.partitions(at, end) for b in reader.read(part)]
            batches.append([value for b in read for value in b.column(column).to_pylist()])
            at = end
        return batches

    def test_a_bucket_of_a_changelog_is_one_part(self, place: Place) -> None:
        table = place.table(SCHEMA, keys=["id"])
        for word in "abcd":
            place.append(table, rows(0, 50, word))
        reader = self.reader(place, table, metadata="_change_type", split_count="9")
        begin = reader.initialOffset()
        partitions = reader.partitions(begin, reader.reportLatestOffset())
        places = [r.place for p in partitions for part in parts_of(p) for r in part.plan.ranges]
        assert sorted(places) == [(None, 0), (None, 1)]

    def test_a_spark_without_limits(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        """As Spark 4.0 and 4.1 ask: no limits, and an end that does not know its start."""
        monkeypatch.setattr(streaming, "HAS_READ_LIMITS", False)
        table = place.table(SCHEMA)
        place.append(table, rows(0, 50, "x"))
        reader = self.reader(place, table)
        begin, end = reader.initialOffset(), reader.latestOffset()
        assert self.read(reader, begin, end) == list(range(50))
        other = {**begin, "table_id": begin["table_id"] + 1000}
        with pytest.raises(TableIdentityChangedError):
            reader.partitions(other, end)
        with pytest.raises(SparkSetupError, match="needs PySpark 4"):
            self.reader(place, table, max_rows_per_trigger="5")
        monkeypatch.setattr(writing, "HAS_STREAM_WRITER", False)
        source = FlussDataSource(place.options(table))
        with pytest.raises(SparkSetupError, match="foreachBatch"):
            source.streamWriter(source.schema(), False)

    def test_a_key_table_needs_the_change_type(self, place: Place) -> None:
        table = place.table(SCHEMA, keys=["id"])
        place.append(table, rows(0, 10, "x"))
        place.append(table, rows(5, 1, "y"))
        with pytest.raises(ConfigError, match="_change_type"):
            self.reader(place, table)
        reader = self.reader(place, table, metadata="_change_type")
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, reader.getDefaultReadLimit())
        assert self.read(reader, begin, end) == sorted([*range(10), 5, 5])

    def test_finished_batches_are_known_to_all(self, place: Place) -> None:
        ledger = BatchLedger(place.connection, 10**9, place.database)
        assert not ledger.is_done(3)
        ledger.finish(3)
        assert BatchLedger(place.connection, 10**9, place.database).is_done(3)
        assert not ledger.is_done(4)
