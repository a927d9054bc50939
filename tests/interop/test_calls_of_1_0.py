"""The official 1.0 client and this one make the same calls to the scripted 1.0 server.

The official client reads what the scripted server answers, and places rows by the same counts: so
the double, too, is held to what the release does. The requests of both are compared field by field.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from google.protobuf.message import Message

import fluss_client as fluss
from fluss_client import col
from fluss_client.codec.kv_batch import decode_kv_batch
from fluss_client.engine import BlockingState, async_connection, backend_of, run_blocking
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from tests.contract.tables import done
from tests.fluss1.server import ScriptedServer, scripted
from tests.fluss1.test_bucket_counts import COUNTS, KEYED, LOG, PATH, ROWS, opened, write
from tests.interop.jars import output_of
from tests.interop.test_predicates_in_java import flat

ALWAYS = {
    "ALTER_DATABASE",
    "ALTER_TABLE",
    "CREATE_PARTITION",
    "GET_CLUSTER_HEALTH",
    "GET_TABLE_INFO",
    "GET_TABLE_STATS",
    "LIMIT_SCAN",
    "LIST_KV_SNAPSHOTS",
    "LIST_REMOTE_LOG_MANIFESTS",
}
OF_KIND = {
    "keys": ALWAYS | {"LOOKUP", "PREFIX_LOOKUP", "PUT_KV", "SCAN_KV"},
    "log": ALWAYS | {"FETCH_LOG", "PRODUCE_LOG"},
}
Line = tuple[str, int, str]


@contextmanager
def server_of(kind: str) -> Iterator[ScriptedServer]:
    with scripted(KEYED if kind == "keys" else LOG, COUNTS, bucket_keys=["id"]) as server:
        server.on(
            apis.GET_CLUSTER_HEALTH,
            lambda _: pb.GetClusterHealthResponse(
                num_replicas=9,
                in_sync_replicas=8,
                num_leader_replicas=3,
                active_leader_replicas=3,
                status=1,
            ),
        )
        server.on(apis.LIST_KV_SNAPSHOTS, _snapshots)
        server.on(
            apis.GET_FILESYSTEM_SECURITY_TOKEN,
            lambda _: pb.GetFileSystemSecurityTokenResponse(schema="file", token=b""),
        )
        yield server


def _snapshots(message: Any) -> Message:
    return pb.ListKvSnapshotsResponse(table_id=7, partition_id=message.partition_id)


def ours(server: ScriptedServer, kind: str) -> None:
    """The calls that `java/Calls.java` makes."""
    with opened(server) as connection:
        table, admin = done(connection.get_table(PATH)), done(connection.get_admin())
        write(table, ROWS)
        info = table.get_table_info()
        places = []
        for name, count in COUNTS.items():
            done(
                admin.list_partition_offsets(
                    PATH, name, list(range(count)), fluss.OffsetSpec.latest()
                )
            )
            places += [
                fluss.TableBucket(info.table_id, n, partition_id=server.partitions[name])
                for n in range(count)
            ]
        done(admin.get_table_stats(PATH))
        for place in places:
            table.new_scan().limit(7).create_bucket_batch_scanner(place).to_arrow()
        if kind == "keys":
            done(table.new_lookup().create_lookuper().lookup([3, 1, "new"]))
            prefix = table.new_lookup().lookup_by(["id", "day"]).create_lookuper()
            done(prefix.lookup([3, "old"]))
            for place in places:
                with BlockingState(async_connection(connection), info, place) as state:
                    assert all(batch.num_rows for batch in state)
        else:
            filtered(table, places)
        administer(connection, admin)


def filtered(table: fluss.FlussTable, places: list[fluss.TableBucket]) -> None:
    text = col("v").starts_with("5") | col("v").is_null()
    # The builder of the official client makes this of a list of few values.
    some = (col("id") == 26) | (col("id") == 27) | (col("id") == 28)
    scan = table.new_scan().filter((col("id") >= 10) & text & some)
    with done(scan.create_record_batch_log_scanner()) as scanner:
        scanner.subscribe_partition_buckets(
            {(p.partition_id, p.bucket_id): fluss.EARLIEST_OFFSET for p in places}
        )
        assert sorted(scanner.to_arrow()["v"].to_pylist()) == [str(n) for n in range(52, 58)]


def administer(connection: fluss.FlussConnection, admin: fluss.FlussAdmin) -> None:
    done(admin.create_partition(PATH, {"day": "third"}))
    done(admin.get_cluster_health())
    done(
        admin.alter_database(
            "shop",
            set_properties={"a": "1"},
            reset_properties=["b"],
            comment="new words",
            ignore_if_not_exists=True,
        )
    )
    done(admin.list_kv_snapshots(PATH, "new", all_snapshots=True))
    done(admin.list_remote_log_manifests(PATH, "new"))
    run_blocking(backend_of(connection).system_partitions(PATH))
    done(admin.alter_table(PATH, bucket_count=8))


def lines(server: ScriptedServer, names: set[str]) -> set[Line]:
    """The requests of some calls, a line for each bucket; without what differs in each run."""
    found: set[Line] = set()
    for name, version, message in server.requests:
        if name in names:
            found |= {(name, version, line) for line in parts(name, message)}
    return found


def parts(name: str, given: Any) -> Iterator[str]:
    message = type(given).FromString(given.SerializeToString())
    if name == "FETCH_LOG":
        (table,) = message.tables_req
        assert table.filter_schema_id == 1
        condition = flat(table.filter_predicate)
        for bucket in table.buckets_req:
            bucket.ClearField("max_fetch_bytes")
            bucket.fetch_offset = 0
            yield f"{table.table_id} {condition} {bucket}"
    elif hasattr(message, "buckets_req"):
        buckets = list(message.buckets_req)
        message.ClearField("buckets_req")
        for bucket in buckets:
            rows = ""
            if name == "PUT_KV":
                rows = str(sorted(decode_kv_batch(bucket.records).keys.to_list()))
            if name in ("PUT_KV", "PRODUCE_LOG"):
                message.ClearField("timeout_ms")
                bucket.records = b""
            if name == "PUT_KV" and not message.agg_mode:
                # The official client sends the default, too.
                message.ClearField("agg_mode")
            yield f"{message} {bucket} {rows}"
    else:
        if name == "SCAN_KV":
            # How many bytes a page has is for each client to choose.
            message.ClearField("batch_size_bytes")
        yield str(message)


@pytest.mark.parametrize("kind", ["keys", "log"])
def test_both_clients_make_the_same_calls(kind: str) -> None:
    with server_of(kind) as theirs, server_of(kind) as mine:
        printed = output_of("Calls.java", "1.0.0", "", theirs.bootstrap, kind)
        ours(mine, kind)
        names = OF_KIND[kind]
        assert {line[0] for line in lines(theirs, names)} == names
        assert lines(mine, names) == lines(theirs, names)
        assert dict(mine.ends) == dict(theirs.ends)
        # Ours also looks up the first offsets.
        asked = lines(theirs, {"LIST_OFFSETS", "LIST_PARTITION_INFOS"})
        assert asked <= lines(mine, {"LIST_OFFSETS", "LIST_PARTITION_INFOS"})
    texts = [f"{r['id']}/{r['part']}/{r['day']}/{r['v']}" for r in ROWS.to_pylist()]
    said: dict[str, list[str]] = {}
    for line in printed:
        what, _, rest = line.partition(" ")
        said.setdefault(what, []).append(rest)
    assert said["stats"] == ["60"]
    assert (said["health"], said["count"]) == (["YELLOW 9"], ["8"])
    whole = [row for rest in said["state" if kind == "keys" else "log"] for row in listed(rest)]
    assert sorted(whole) == sorted(texts)
    assert {row for rest in said["limit"] for row in listed(rest)} <= set(texts)
    if kind == "keys":
        assert (said["row"], said["rows"]) == (["3/1/new/7"], ["[3/1/old/6]"])


def listed(text: str) -> list[str]:
    return text.strip("[]").split(", ")
