"""Reading to the end: which rows come, what comes after them, and who may read meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import Config, aio
from fluss_client.aio.scanning.errors import ReaderActiveError, SubscriptionError
from tests.contract.tables import POLL_MS, Tables, done

EVENTS = {"id": pa.int64()}
USERS = {"id": pa.int32(), "name": pa.string()}


@pytest.fixture(autouse=True)
def short_collections() -> Iterator[None]:
    """The tests collect garbage, and what the whole run holds takes longer than they do."""
    gc.freeze()
    yield
    gc.unfreeze()


def _table(tables: Tables, *, batches: int = 3, buckets: int = 1) -> fluss.FlussTable:
    """A log of `batches` batches of two rows in each bucket."""
    table = tables.create(EVENTS, buckets=buckets, bucket_keys=["id"])
    for start in range(0, 2 * batches * buckets, 2):
        tables.append(table, [{"id": start}, {"id": start + 1}])
    return table


def _scanner(tables: Tables, table: fluss.FlussTable) -> fluss.LogScanner:
    scanner: fluss.LogScanner = done(table.new_scan().create_record_batch_log_scanner())
    tables.subscribe(scanner, table)
    return scanner


def _ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


def _polled(scanner: fluss.LogScanner, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        rows = scanner.poll_arrow(POLL_MS)
        assert rows.num_rows, f"only {len(found)} of {count} rows came"
        found += rows["id"].to_pylist()
    return found


def test_reading_to_the_end_twice_gives_the_rows_twice(tables: Tables) -> None:
    table = _table(tables)
    with _scanner(tables, table) as scanner:
        assert _ids(scanner.to_arrow()) == list(range(6))
        assert scanner.to_pandas()["id"].tolist() == list(range(6))
        assert _ids(scanner.to_arrow_batch_reader().read_all()) == list(range(6))
        tables.append(table, [{"id": 6}])
        assert _ids(scanner.to_arrow()) == list(range(7))
        tables.append(table, [{"id": 7}, {"id": 8}])
        # Polls go on where reading has ended, and from then on reading begins where they stand.
        assert _polled(scanner, 2) == [7, 8]
        assert scanner.to_arrow().num_rows == 0
        tables.append(table, [{"id": 9}])
        assert _ids(scanner.to_arrow()) == [9]
        assert scanner.to_pandas()["id"].tolist() == [9]
        scanner.subscribe(0, 8)
        assert _ids(scanner.to_arrow()) == [8, 9]


def test_reading_to_the_end_from_the_latest_offset(tables: Tables) -> None:
    table = _table(tables)
    with done(table.new_scan().create_record_batch_log_scanner()) as scanner:
        scanner.subscribe(0, fluss.LATEST_OFFSET)
        assert scanner.to_arrow().num_rows == 0
        tables.append(table, [{"id": 6}])
        assert _ids(scanner.to_arrow()) == [6]
        assert _ids(scanner.to_arrow()) == [6]


def test_an_active_reader_has_the_scanner_for_itself(tables: Tables) -> None:
    table = _table(tables)
    with _scanner(tables, table) as scanner:
        reader = scanner.to_arrow_batch_reader()
        for refused in (
            lambda: scanner.subscribe(0, 0),
            lambda: scanner.subscribe_buckets({0: 0}),
            lambda: scanner.unsubscribe(0),
            lambda: scanner.poll_arrow(0),
            lambda: scanner.poll_record_batch(0),
            lambda: scanner.to_arrow(),
            lambda: scanner.to_pandas(),
            lambda: scanner.to_arrow_batch_reader(),
        ):
            with pytest.raises(ReaderActiveError, match="RecordBatchLogReader is active"):
                refused()
        assert scanner.metrics()["buckets"] == 1
        first = reader.read_next_batch()
        with pytest.raises(ReaderActiveError):
            scanner.to_arrow()
        rest = reader.read_all()
        assert _ids(pa.concat_tables([pa.table(first), rest])) == list(range(6))
        # Read to its end it is over, though it is still there.
        tables.append(table, [{"id": 6}])
        assert _polled(scanner, 1) == [6]
        del reader


@pytest.mark.parametrize("batches", [0, 1], ids=["unread", "half-read"])
def test_a_reader_that_is_dropped_early_skips_nothing_silently(
    tables: Tables, batches: int
) -> None:
    table = _table(tables, batches=4, buckets=2)
    with _scanner(tables, table) as scanner:
        reader = scanner.to_arrow_batch_reader()
        for _ in range(batches):
            assert reader.read_next_batch().num_rows
        del reader
        gc.collect()
        for refused in (
            lambda: scanner.to_arrow_batch_reader(),
            lambda: scanner.to_arrow(),
            lambda: scanner.poll_arrow(0),
            lambda: scanner.poll_record_batch(0),
        ):
            with pytest.raises(SubscriptionError, match="No buckets subscribed") as caught:
                refused()
            assert "a batch reader was dropped or failed before its end" in str(caught.value)
        tables.subscribe(scanner, table)
        assert _ids(scanner.to_arrow_batch_reader().read_all()) == list(range(16))
        assert _ids(scanner.to_arrow()) == list(range(16))


def test_a_reader_that_gave_every_row_may_be_dropped(tables: Tables) -> None:
    table = _table(tables)
    with _scanner(tables, table) as scanner:
        reader = scanner.to_arrow_batch_reader()
        seen = 0
        while seen < 6:
            seen += reader.read_next_batch().num_rows
        del reader
        gc.collect()
        tables.append(table, [{"id": 6}])
        assert _polled(scanner, 1) == [6]
        scanner.subscribe(0, 7)
        # Nothing to read: dropping it unread loses nothing.
        del_me = scanner.to_arrow_batch_reader()
        del del_me
        gc.collect()
        tables.append(table, [{"id": 7}])
        assert _polled(scanner, 1) == [7]


def test_the_same_on_the_own_loop(tables: Tables, config: Config) -> None:
    path = _table(tables).get_table_path()

    async def job() -> None:
        async with await aio.FlussConnection.create(config) as connection:
            table = await connection.get_table(path)
            scanner = await table.new_scan().create_record_batch_log_scanner()
            scanner.subscribe(0, aio.EARLIEST_OFFSET)
            reader = await asyncio.to_thread(scanner.to_arrow_batch_reader)
            with pytest.raises(ReaderActiveError):
                await scanner.poll_arrow(0)
            with pytest.raises(ReaderActiveError):
                await anext(scanner)
            loop = asyncio.get_running_loop()
            with ThreadPoolExecutor(1) as pool:  # its thread holds the reader until it has ended
                assert (await loop.run_in_executor(pool, reader.read_next_batch)).num_rows
            del reader
            gc.collect()
            with pytest.raises(SubscriptionError, match="No buckets subscribed any more"):
                await scanner.poll_arrow(0)
            with pytest.raises(SubscriptionError, match="No buckets subscribed any more"):
                await anext(scanner)
            scanner.subscribe(0, aio.EARLIEST_OFFSET)
            assert _ids(await scanner.to_arrow()) == list(range(6))
            assert len(await scanner.to_pandas()) == 6
            await scanner.close()

    asyncio.run(job())


def test_polls_without_a_bucket(tables: Tables) -> None:
    table = _table(tables)
    with _scanner(tables, table) as batches:
        batches.unsubscribe(0)
        assert batches.poll_arrow(1).num_rows == 0
        assert batches.poll_arrow(1).schema.names == ["id"]
        assert batches.poll_record_batch(1) == []
        with pytest.raises(SubscriptionError, match="No buckets subscribed"):
            batches.to_arrow()
        batches.subscribe(0, 4)
        assert _polled(batches, 2) == [4, 5]
    with done(table.new_scan().create_log_scanner()) as records:
        # Never subscribed is a mistake, unsubscribed is a wish.
        with pytest.raises(SubscriptionError, match="No buckets subscribed"):
            records.poll(0)
        records.subscribe(0, 0)
        records.unsubscribe(0)
        assert records.poll(1).is_empty()


def test_a_changelog_says_what_happened_by_signs(tables: Tables) -> None:
    table = tables.create(USERS, ["id"])
    tables.upsert(table, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    tables.upsert(table, [{"id": 1, "name": "A"}])
    tables.delete(table, [{"id": 2}])
    signs = ["+I", "+I", "-U", "+U", "-D"]
    with _scanner(tables, table) as scanner:
        assert scanner.to_arrow()["_change_type"].to_pylist() == signs
        assert scanner.to_pandas()["_change_type"].tolist() == signs
        read = scanner.to_arrow_batch_reader().read_all()
        assert read["_change_type"].to_pylist() == signs
        scanner.subscribe(0, 0)
        polled: list[str] = []
        while len(polled) < 5:
            polled += scanner.poll_arrow(POLL_MS)["_change_type"].to_pylist()
        assert polled == signs
        scanner.subscribe(0, 0)
        codes: list[int] = []
        while len(codes) < 5:
            for batch in scanner.poll_record_batch(POLL_MS):
                codes += fluss.ChangeType.codes_of(batch.change_types).tolist()
        assert [str(fluss.ChangeType(code)) for code in codes] == signs
    assert fluss.ChangeType.codes_of(read["_change_type"]).tolist() == codes
