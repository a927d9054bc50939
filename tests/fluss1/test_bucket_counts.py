"""The client against a scripted 1.0 server: partitions with different counts, and error 74."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.engine import async_connection, read_ranges, run_blocking
from fluss_client.errors import FlussError, InvalidBucketRoutingError
from fluss_client.wire import apis
from tests.contract.tables import done
from tests.fluss1.server import DATABASE, NAME, ScriptedServer, scripted
from tests.waiting import wait_until

FIELDS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        pa.field("v", pa.string()),
    ]
)
KEYED = fluss.Schema(FIELDS, primary_keys=["id", "part", "day"])
LOG = fluss.Schema(FIELDS)
COUNTS = {"old": 2, "new": 5}
PATH = fluss.TablePath(DATABASE, NAME)
ROWS = pa.table(
    {
        "id": [n for n in range(30) for _ in COUNTS],
        "part": pa.array([1] * 60, pa.int32()),
        "day": list(COUNTS) * 30,
        "v": [f"{n}" for n in range(60)],
    }
)


@contextmanager
def opened(server: ScriptedServer, **options: Any) -> Iterator[fluss.FlussConnection]:
    config = fluss.Config(
        {"bootstrap.servers": server.bootstrap, "request-timeout": "10s", **options}
    )
    connection = done(fluss.FlussConnection.create(config))
    try:
        yield connection
    finally:
        connection.close()


def write(table: fluss.FlussTable, rows: pa.Table) -> None:
    if table.get_table_info().has_primary_key():
        with table.new_upsert().create_writer() as writer:
            writer.write_arrow(rows)
    else:
        with table.new_append().create_writer() as appender:
            appender.write_arrow(rows)


def looked_up(table: fluss.FlussTable, rows: pa.Table) -> list[Any]:
    keys = [[r["id"], r["part"], r["day"]] for r in rows.to_pylist()]
    found: list[Any] = done(table.new_lookup().create_lookuper().lookup_many(keys))
    return found


def routed(message: Any) -> set[int]:
    """The counts of all buckets of a request; 0 for a bucket without one."""
    parts = getattr(message, "buckets_req", [message])
    return {part.routing_bucket_count for part in parts}


@pytest.mark.parametrize("schema", [KEYED, LOG], ids=["keys", "log"])
def test_every_request_says_the_count_of_its_partition(schema: fluss.Schema) -> None:
    with scripted(schema, COUNTS, bucket_keys=["id"]) as server, opened(server) as connection:
        table = done(connection.get_table(PATH))
        admin = done(connection.get_admin())
        write(table, ROWS)
        call = apis.PUT_KV if schema.primary_keys else apis.PRODUCE_LOG
        assert set().union(*map(routed, server.sent(call))) == {2, 5}
        for name, count in COUNTS.items():
            offsets = done(
                admin.list_partition_offsets(
                    PATH, name, list(range(count)), fluss.OffsetSpec.latest()
                )
            )
            assert sum(offsets.values()) == 30
        assert set().union(*map(routed, server.sent(apis.LIST_OFFSETS))) == {2, 5}
        assert sum(done(admin.get_table_stats(PATH)).values()) == 60
        assert set().union(*map(routed, server.sent(apis.GET_TABLE_STATS))) == {2, 5}
        info = table.get_table_info()
        for name, partition_id in server.partitions.items():
            for bucket in range(COUNTS[name]):
                place = fluss.TableBucket(info.table_id, bucket, partition_id=partition_id)
                table.new_scan().limit(10).create_bucket_batch_scanner(place).to_arrow()
        assert set().union(*map(routed, server.sent(apis.LIMIT_SCAN))) == {2, 5}
        if schema.primary_keys:
            assert looked_up(table, ROWS) == ROWS.to_pylist()
            one = table.new_lookup().create_lookuper()
            assert done(one.lookup([3, 1, "new"])) == ROWS.to_pylist()[7]
            prefix = table.new_lookup().lookup_by(["id", "day"]).create_lookuper()
            assert done(prefix.lookup([3, "old"])) == [ROWS.to_pylist()[6]]
            for api in (apis.LOOKUP, apis.PREFIX_LOOKUP):
                assert set().union(*map(routed, server.sent(api))) <= {2, 5}
        else:
            assert sorted(read_all(table, server)) == sorted(ROWS["v"].to_pylist())
            fetched = [t for m in server.sent(apis.FETCH_LOG) for t in m.tables_req]
            assert set().union(*map(routed, fetched)) == {2, 5}


def read_all(table: fluss.FlussTable, server: ScriptedServer) -> list[str]:
    with done(table.new_scan().create_record_batch_log_scanner()) as scanner:
        scanner.subscribe_partition_buckets(
            {
                (partition_id, bucket): fluss.EARLIEST_OFFSET
                for partition_id in server.partitions.values()
                for bucket in range(server.counts[partition_id])
            }
        )
        values: list[str] = scanner.to_arrow()["v"].to_pylist()
    return values


def test_servers_before_1_0_get_the_bytes_of_before() -> None:
    with scripted(KEYED, {"a": 2}, bucket_keys=["id"], old=True) as server:
        with opened(server) as connection:
            table = done(connection.get_table(PATH))
            rows = ROWS.set_column(2, "day", pa.array(["a"] * 60))
            write(table, rows.slice(0, 20))
            looked_up(table, rows.slice(0, 20))
            admin = done(connection.get_admin())
            with pytest.raises(errors.UnsupportedByServerError):
                done(admin.alter_table(PATH, bucket_count=9))
            assert not admin.capabilities.rescaling
        for name, version, message in server.requests:
            assert "routing_bucket_count" not in str(message), name
            assert version <= {"PUT_KV": 1, "LOOKUP": 1, "PREFIX_LOOKUP": 1}.get(name, 0)


def test_a_bucket_count_is_changed_with_the_new_version_of_the_call() -> None:
    with scripted(KEYED, {"old": 2}, bucket_keys=["id"]) as server, opened(server) as connection:
        admin = done(connection.get_admin())
        done(admin.alter_table(PATH, bucket_count=5))
        ((name, version, message),) = [r for r in server.requests if r[0] == "ALTER_TABLE"]
        assert (name, version) == ("ALTER_TABLE", 1)
        assert message.modify_bucket_count.new_bucket_count == 5
        done(admin.create_partition(PATH, {"day": "new"}))
        table = done(connection.get_table(PATH))
        write(table, ROWS)
        assert looked_up(table, ROWS) == ROWS.to_pylist()
        assert admin.capabilities.rescaling


def test_a_writer_that_was_opened_before_the_change_places_rows_by_each_count() -> None:
    with scripted(KEYED, {"old": 2}, bucket_keys=["id"]) as server, opened(server) as connection:
        table = done(connection.get_table(PATH))
        with table.new_upsert().create_writer() as writer:
            writer.write_arrow(ROWS.filter(pa.compute.equal(ROWS["day"], "old")))
            done(writer.flush())
            admin = done(connection.get_admin())
            done(admin.alter_table(PATH, bucket_count=5))
            done(admin.create_partition(PATH, {"day": "new"}))
            writer.write_arrow(ROWS.filter(pa.compute.equal(ROWS["day"], "new")))
        assert looked_up(table, ROWS) == ROWS.to_pylist()


@pytest.mark.parametrize("schema", [KEYED, LOG], ids=["keys", "log"])
def test_rows_that_were_placed_by_a_wrong_count_are_placed_anew(schema: fluss.Schema) -> None:
    with scripted(schema, COUNTS, bucket_keys=["id"]) as server, opened(server) as connection:
        table = done(connection.get_table(PATH))
        create = table.new_upsert if schema.primary_keys else table.new_append
        with create().create_writer() as writer:
            writer.write_arrow(ROWS.slice(0, 20))
            done(writer.flush())
            server.redistribute("new", 3)
            writer.write_arrow(ROWS)
            done(writer.flush())
            assert writer.metrics()["rows_failed"] == 0
        if schema.primary_keys:
            assert looked_up(table, ROWS) == ROWS.to_pylist()
        else:
            new = server.partitions["new"]
            assert sum(server.ends[new, bucket] for bucket in range(3)) == 30
        assert not [
            place for place in server.ends if place[0] == server.partitions["new"] and place[1] >= 3
        ]


def test_look_ups_that_were_placed_by_a_wrong_count_are_placed_anew() -> None:
    with scripted(KEYED, COUNTS, bucket_keys=["id"]) as server, opened(server) as connection:
        table = done(connection.get_table(PATH))
        write(table, ROWS)
        assert looked_up(table, ROWS) == ROWS.to_pylist()
        kept = {
            k: v
            for p, held in server.values.items()
            if p[0] == server.partitions["new"]
            for k, v in held.items()
        }
        server.redistribute("new", 1)
        server.values[server.partitions["new"], 0] = kept
        assert looked_up(table, ROWS) == ROWS.to_pylist()
        one = table.new_lookup().create_lookuper()
        server.redistribute("new", 4)
        assert done(one.lookup([3, 1, "new"])) is None
        assert done(one.lookup([3, 1, "old"])) == ROWS.to_pylist()[6]


def limited(connection: fluss.FlussConnection, place: fluss.TableBucket) -> int:
    scan = done(connection.get_table(PATH)).new_scan().limit(99)
    return int(scan.create_bucket_batch_scanner(place).to_arrow().num_rows)


def logged(connection: fluss.FlussConnection, place: fluss.TableBucket) -> int:
    scan = done(connection.get_table(PATH)).new_scan()
    with done(scan.create_record_batch_log_scanner()) as scanner:
        assert place.partition_id is not None
        scanner.subscribe_partition_buckets({(place.partition_id, place.bucket_id): 0})
        return int(scanner.to_arrow().num_rows)


def ranged(connection: fluss.FlussConnection, place: fluss.TableBucket) -> int:
    core = async_connection(connection)
    info = done(connection.get_table(PATH)).get_table_info()

    async def read() -> int:
        reading = read_ranges(core.backend, info, {place: (0, 30)}, config=core.config)
        return sum([batch.batch.num_rows async for batch in reading])

    return run_blocking(read())


def last_offset(connection: fluss.FlussConnection, place: fluss.TableBucket) -> int:
    admin = done(connection.get_admin())
    latest = fluss.OffsetSpec.latest()
    return int(done(admin.list_partition_offsets(PATH, "new", [0], latest))[place.bucket_id])


def counted(connection: fluss.FlussConnection, place: fluss.TableBucket) -> int:
    return int(done(done(connection.get_admin()).get_table_stats(PATH, [place]))[place])


READS: dict[str, tuple[Callable[[fluss.FlussConnection, fluss.TableBucket], int], Any]] = {
    "limit scan": (limited, apis.LIMIT_SCAN),
    "log scan": (logged, apis.FETCH_LOG),
    "range": (ranged, apis.FETCH_LOG),
    "offsets": (last_offset, apis.LIST_OFFSETS),
    "statistics": (counted, apis.GET_TABLE_STATS),
}


@pytest.mark.parametrize("name", list(READS))
@pytest.mark.parametrize("schema", [KEYED, LOG], ids=["keys", "log"])
def test_reads_by_a_wrong_count_are_made_again(schema: fluss.Schema, name: str) -> None:
    """The client knows a count that is not the partition's; the rows of bucket 0 stay there."""
    read, api = READS[name]
    with scripted(schema, {"old": 2, "new": 1}, bucket_keys=["id"]) as server:

        def uncounted(message: Any) -> Any:
            # Else a new look for the leader tells the count, too.
            answer: Any = server._get_metadata(message)
            for partition in answer.partition_metadata:
                partition.ClearField("bucket_count")
            return answer

        server.on(apis.GET_METADATA, uncounted)
        with opened(server) as connection:
            table = done(connection.get_table(PATH))
            write(table, ROWS)
            new = server.partitions["new"]
            place = fluss.TableBucket(table.get_table_info().table_id, 0, partition_id=new)
            assert read(connection, place) == 30
            kept = server.values[new, 0], server.logs[new, 0]
            server.redistribute("new", 4)
            server.values[new, 0], server.logs[new, 0] = kept
            server.ends[new, 0] = 30
            assert read(connection, place) == 30
        last = server.sent(api)[-1]
        if api is apis.FETCH_LOG:
            assert routed(last.tables_req[0]) == {4}
        else:
            assert routed(last) == {4}


def test_prefix_look_ups_by_a_wrong_count_are_made_again() -> None:
    with scripted(KEYED, COUNTS, bucket_keys=["id"]) as server, opened(server) as connection:
        table = done(connection.get_table(PATH))
        write(table, ROWS)
        prefix = table.new_lookup().lookup_by(["id", "day"]).create_lookuper()
        assert done(prefix.lookup([3, "new"])) == [ROWS.to_pylist()[7]]
        new = server.partitions["new"]
        kept = {k: v for p, held in server.values.items() if p[0] == new for k, v in held.items()}
        server.redistribute("new", 1)
        server.values[new, 0] = kept
        assert done(prefix.lookup([3, "new"])) == [ROWS.to_pylist()[7]]
        assert routed(server.sent(apis.PREFIX_LOOKUP)[-1]) == {1}


def test_the_order_of_each_key_survives_corrections() -> None:
    # Several threads write rising versions of their own keys while the count changes.
    options = {"writer.batch-timeout-ms": "1"}
    with scripted(KEYED, COUNTS, bucket_keys=["id"]) as server:  # noqa: SIM117 - options
        with opened(server, **options) as connection:
            table = done(connection.get_table(PATH))
            writer = table.new_upsert().create_writer()
            rounds = 40

            def send(first: int) -> None:
                for version in range(rounds):
                    for number in range(first, first + 5):
                        writer.upsert([number, 1, "new", f"{version}"])

            threads = [threading.Thread(target=send, args=(n,)) for n in (0, 5, 10, 15)]
            for thread in threads:
                thread.start()
            for count in (3, 7, 2):
                later = len(server.requests) + 5
                wait_until(
                    "more requests",
                    lambda n=later: (  # type: ignore[misc]
                        len(server.requests) >= n or not any(t.is_alive() for t in threads)
                    ),
                    pause_s=0.01,
                )
                server.redistribute("new", count)
            for thread in threads:
                thread.join()
            # After the last change every key is written once more, because rows were dropped.
            for number in range(20):
                writer.upsert([number, 1, "new", "last"])
            done(writer.flush())
            writer.close()
            keys = pa.table({"id": list(range(20)), "part": [1] * 20, "day": ["new"] * 20})
            assert {row["v"] for row in looked_up(table, keys)} == {"last"}
            held = [p for p in server.values if p[0] == server.partitions["new"]]
            assert all(bucket < 2 for _, bucket in held)


def test_a_server_that_never_agrees_fails_the_write_in_time() -> None:
    with scripted(KEYED, COUNTS, bucket_keys=["id"]) as server:

        def refuse(message: Any) -> FlussError | None:
            return InvalidBucketRoutingError("no")

        server.on(apis.PUT_KV, refuse)
        with opened(server, **{"retry-timeout": "1s"}) as connection:
            table = done(connection.get_table(PATH))
            writer = table.new_upsert().create_writer()
            writer.write_arrow(ROWS)
            with pytest.raises(errors.WriteError) as caught:
                done(writer.flush())
            assert isinstance(caught.value.__cause__, InvalidBucketRoutingError)


def test_pinned_rows_are_never_placed_anew() -> None:
    from fluss_client.engine import backend_of, upsert_pinned

    with scripted(KEYED, COUNTS, bucket_keys=["id"]) as server, opened(server) as connection:
        table = done(connection.get_table(PATH))
        info = table.get_table_info()
        place = fluss.TableBucket(info.table_id, 1, partition_id=server.partitions["new"])
        batch = ROWS.filter(pa.compute.equal(ROWS["day"], "new")).to_batches()[0]
        pinned = upsert_pinned(
            backend_of(connection), info, place, [(batch, None)], 9, bucket_count=2
        )
        with pytest.raises(errors.WriteError) as caught:
            run_blocking(pinned)
        assert isinstance(caught.value.__cause__, InvalidBucketRoutingError)
        assert not server.values[server.partitions["new"], 1]
        assert async_connection(connection).backend is backend_of(connection)


def test_pressure_slows_a_writer_down_and_error_72_does_not_fail_it() -> None:
    with scripted(KEYED, COUNTS, bucket_keys=["id"]) as server:
        refusals = itertools.count()

        def overloaded(message: Any) -> FlussError | None:
            return errors.StorageBackpressureError("slow") if next(refusals) < 3 else None

        server.on(apis.PUT_KV, overloaded)
        server.pressure = 0.5
        options = {"writer.kv-backpressure.max-throttle-ms": "200", "writer.retries": "1"}
        with opened(server, **options) as connection:
            table = done(connection.get_table(PATH))
            with table.new_upsert().create_writer() as writer:
                for start in range(0, 60, 20):
                    writer.write_arrow(ROWS.slice(start, 20))
                    done(writer.flush())
                assert writer.metrics()["throttles"] > 0
            assert looked_up(table, ROWS) == ROWS.to_pylist()


def test_a_partition_of_a_rescaled_table_is_dropped_at_once() -> None:
    """A drop waits until the buckets of the partition have leaders: those that it has."""
    with scripted(LOG, COUNTS, buckets=5, bucket_keys=["id"]) as server, opened(server) as opened_:
        admin = done(opened_.get_admin())
        done(admin.get_table_info(PATH))
        before = len(server.sent(apis.GET_METADATA))
        done(admin.drop_partition(PATH, {"day": "old"}))
        asked = [m for m in server.sent(apis.GET_METADATA)[before:] if m.partitions_id]
        # Once for each of its two buckets; more would mean that it waits for buckets 2 to 4.
        assert 1 <= len(asked) <= COUNTS["old"]
