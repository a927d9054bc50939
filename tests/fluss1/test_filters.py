"""Conditions of log scans: tested by the client always, sent to servers that take them."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import col
from fluss_client.aio.scanning.filtering import kept_rows
from fluss_client.backend.cluster.predicates import predicate_pb
from fluss_client.model.predicate import Predicate
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from fluss_orchestrate.cli.commands.read import Wanted, open_source, parse_filter
from fluss_orchestrate.core.incremental.planning.planner import plan_once
from fluss_orchestrate.core.incremental.reading.reader import PlanReading, ReadOptions
from fluss_orchestrate.core.row_filter import RowFilter
from fluss_orchestrate.spark.source.options import SourceOptions
from fluss_orchestrate.spark.source.parts import read_parts
from fluss_orchestrate.spark.source.planning import plan_parts
from tests.contract.tables import done
from tests.fluss1.server import ScriptedServer, scripted
from tests.fluss1.test_bucket_counts import PATH, opened

UTC = dt.UTC
FIELDS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(30, 2)),
        ("share", pa.float64()),
        ("on", pa.bool_()),
        ("raw", pa.binary()),
    ]
)
SCHEMA = fluss.Schema(FIELDS)
DAY, AT = dt.date(2024, 5, 6), dt.datetime(2024, 5, 6, 7, 8, 9, 123456)


def row(number: int) -> dict[str, Any]:
    if number == 3:
        return dict.fromkeys(FIELDS.names)
    return {
        "id": number,
        "name": f"n{number}",
        "day": DAY + dt.timedelta(days=number),
        "at": AT + dt.timedelta(seconds=number),
        "moment": (AT + dt.timedelta(seconds=number)).replace(tzinfo=UTC),
        "price": Decimal(number) / 4,
        "wide": Decimal(number),
        "share": number / 2,
        "on": number % 2 == 0,
        "raw": bytes([number]),
    }


ROWS = pa.RecordBatch.from_pylist([row(number) for number in range(10)], FIELDS)
CASES: list[tuple[Predicate, list[int]]] = [
    (col("id") == 4, [4]),
    (col("id") != 4, [0, 1, 2, 5, 6, 7, 8, 9]),
    ((col("id") > 2) & (col("id") <= 5), [4, 5]),
    ((col("id") < 1) | (col("name") == "n7"), [0, 7]),
    (col("id").is_null(), [3]),
    (col("id").is_not_null() & (col("id") >= 8), [8, 9]),
    (col("id").is_null() | (col("id") == 9), [3, 9]),
    (col("name").starts_with("n1"), [1]),
    (col("name").ends_with("8"), [8]),
    (col("name").contains("5"), [5]),
    (col("id").is_in([1, 2, 99]), [1, 2]),
    (col("id").is_in([]), []),
    (col("id").not_in([0, 1, 2, 4, 5, 6]), [7, 8, 9]),
    (col("day") == dt.date(2024, 5, 8), [2]),
    (col("at") >= AT + dt.timedelta(seconds=9), [9]),
    (col("moment") < (AT + dt.timedelta(seconds=1)).replace(tzinfo=UTC), [0]),
    (col("price") == Decimal("0.25"), [1]),
    (col("price") > Decimal("2.00"), [9]),
    (col("wide") == Decimal(5), [5]),
    (col("share") > 4.0, [9]),
    (col("on") == True, [0, 2, 4, 6, 8]),  # noqa: E712 - a condition, not a truth value
    (col("raw") == b"\x06", [6]),
]


def literal_of(predicate: Predicate) -> pb.PbLiteralValue:
    message = predicate_pb(predicate, SCHEMA)
    assert message is not None
    return message.leaf.literals[0]


@pytest.mark.parametrize(("predicate", "expected"), CASES, ids=repr)
def test_rows_are_kept_by_the_rules_of_sql(predicate: Predicate, expected: list[int]) -> None:
    predicate.check(SCHEMA)
    assert [n for n, kept in enumerate(kept_rows(predicate, ROWS).to_pylist()) if kept] == expected


def test_conditions_become_messages() -> None:
    message = predicate_pb((col("id") > 2) & col("name").starts_with("n"), SCHEMA)
    assert message is not None
    assert (message.type, message.compound.function) == (1, 0)
    first, second = message.compound.children
    assert (first.leaf.function, first.leaf.field_id) == (4, 0)
    assert first.leaf.literals[0].bigint_value == 2
    assert (second.leaf.function, second.leaf.literals[0].string_value) == (8, "n")
    assert literal_of(col("day") == DAY).bigint_value == (DAY - dt.date(1970, 1, 1)).days
    at = literal_of(col("at") == AT)
    assert at.timestamp_millis_value == int(AT.replace(tzinfo=UTC).timestamp() * 1000)
    assert at.timestamp_nano_of_millis_value == 456_000
    assert literal_of(col("price") == Decimal("-1.5")).decimal_value == -150
    assert literal_of(col("wide") == Decimal("-1.5")).decimal_bytes == b"\xff\x6a"
    assert literal_of(col("wide") == Decimal("1.28")).decimal_bytes == b"\x00\x80"


def test_what_cannot_be_said_exactly_is_not_sent() -> None:
    inexact = col("price") > Decimal("2.005")
    assert predicate_pb(inexact, SCHEMA) is None
    assert predicate_pb(col("share") > 1.0, SCHEMA) is None
    part = predicate_pb((col("id") == 1) & inexact, SCHEMA)
    assert part is not None
    assert part.leaf.field_id == 0
    assert predicate_pb((col("id") == 1) | inexact, SCHEMA) is None


def pruning(server: ScriptedServer) -> None:
    """Let the server leave out the batches whose first row does not meet `id >= ...`."""

    def fetch(message: Any) -> Any:
        (table,) = message.tables_req
        if not table.HasField("filter_predicate"):
            return None
        condition = table.filter_predicate
        first = condition.compound.children[0] if condition.type else condition
        bound = first.leaf.literals[0].bigint_value
        answer = pb.FetchLogResponse()
        found = answer.tables_resp.add(table_id=table.table_id)
        for part in table.buckets_req:
            place = (None, part.bucket_id)
            entry = found.buckets_resp.add(bucket_id=part.bucket_id)
            entry.high_watermark = end = server.ends[place]
            kept = b""
            for batch in server.logs[place]:
                (base,) = struct.unpack_from("<q", batch, 0)
                if base >= max(bound - 9, part.fetch_offset):
                    kept += batch
            entry.records = kept
            entry.filtered_end_offset = end
        return answer

    server.on(apis.FETCH_LOG, fetch)


def test_batches_that_the_server_leaves_out_are_skipped_and_the_rest_is_tested() -> None:
    with scripted(SCHEMA, buckets=1) as server, opened(server) as connection:
        pruning(server)
        table = done(connection.get_table(PATH))
        with table.new_append().create_writer() as writer:
            for start in range(0, 100, 10):
                rows = ROWS.set_column(0, "id", pa.array(range(start, start + 10), pa.int64()))
                writer.write_arrow(rows)
                done(writer.flush())
        scan = table.new_scan().filter(col("id") >= 85).project_by_name(["name", "on"])
        with done(scan.create_record_batch_log_scanner()) as scanner:
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            assert scanner.to_arrow().num_rows == 15
        with done(table.new_scan().filter(col("id") >= 85).create_log_scanner()) as scanner:
            scanner.subscribe(0, 10)
            found = []
            while len(found) < 15:
                found += [(record.offset, record.row["id"]) for record in scanner.poll(10_000)]
            assert found == [(n, n) for n in range(85, 100)]
        sent = [t for m in server.sent(apis.FETCH_LOG) for t in m.tables_req]
        assert all(t.filter_schema_id == 1 for t in sent)
        odd = (col("id") >= 85) & (col("on") == False)  # noqa: E712 - a condition
        with done(table.new_scan().filter(odd).create_record_batch_log_scanner()) as scanner:
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            batches = scanner.poll_record_batch(10_000)
            assert [list(b.offsets) for b in batches if b.offsets is not None] == [
                [85, 87, 89],
                [91, 95, 97, 99],
            ]


def filled(connection: fluss.FlussConnection) -> None:
    """Write 100 rows in ten batches; the id of a row is its offset."""
    table = done(connection.get_table(PATH))
    with table.new_append().create_writer() as writer:
        for start in range(0, 100, 10):
            rows = ROWS.set_column(0, "id", pa.array(range(start, start + 10), pa.int64()))
            writer.write_arrow(rows)
            done(writer.flush())


def sent_conditions(server: ScriptedServer) -> list[bool]:
    fetched = [t for m in server.sent(apis.FETCH_LOG) for t in m.tables_req]
    return [t.HasField("filter_predicate") for t in fetched]


@pytest.mark.parametrize("old", [False, True])
def test_row_filters_of_spark_are_sent(old: bool) -> None:
    with scripted(SCHEMA, buckets=1, old=old) as server, opened(server) as connection:
        pruning(server)
        filled(connection)
        given = {"bootstrap.servers": server.bootstrap, "table": str(PATH), "read": "log"}
        text = "id >= 85 and `on` = false and _offset < 95"
        asked = SourceOptions.of(given | {"filter": text})
        (parts,) = plan_parts(asked, ["id", "_offset", "on"], 1)
        target = pa.schema([("id", pa.int64()), ("_offset", pa.int64()), ("on", pa.bool_())])
        batches = list(read_parts(asked.cluster, parts, target, asked.row_filter))
        found = [row for batch in batches for row in batch.to_pylist()]
        assert [(r["id"], r["_offset"]) for r in found] == [(n, n) for n in (85, 87, 89, 91)]
        conditions = sent_conditions(server)
        assert any(conditions) is not old


def test_the_row_filter_of_the_command_line_is_sent() -> None:
    with scripted(SCHEMA, buckets=1) as server, opened(server) as connection:
        pruning(server)
        filled(connection)
        wanted = Wanted(
            str(PATH), "log", columns=["name"], row_filter=parse_filter("id between 85 and 90")
        )
        rows = open_source(connection, wanted)
        table = pa.Table.from_batches(list(rows.batches), rows.schema)
        assert table.column_names == ["name"]
        assert table.num_rows == 6
        assert all(sent_conditions(server))


def test_a_pruned_plan_counts_its_offsets() -> None:
    """What the server left out was read, too: the plan is complete."""
    with scripted(SCHEMA, buckets=1) as server, opened(server) as connection:
        pruning(server)
        filled(connection)
        options = ReadOptions(pruning=RowFilter.parse("id >= 85"))
        reading = PlanReading(connection, plan_once(connection, PATH), options)
        ids = [n for batch in reading.batches() for n in batch["id"].to_pylist()]
        # Batches of ten rows: the server leaves out whole ones, and nothing is tested here.
        assert ids == list(range(80, 100))
        assert reading.tally.complete


def test_older_servers_are_sent_no_condition_and_the_client_tests_the_rows() -> None:
    with scripted(SCHEMA, buckets=1, old=True) as server, opened(server) as connection:
        table = done(connection.get_table(PATH))
        with table.new_append().create_writer() as writer:
            writer.write_arrow(pa.Table.from_batches([ROWS]))
        with done(
            table.new_scan().filter(col("id") >= 7).create_record_batch_log_scanner()
        ) as scanner:
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            assert scanner.to_arrow()["id"].to_pylist() == [7, 8, 9]
        assert not any(
            t.HasField("filter_predicate")
            for m in server.sent(apis.FETCH_LOG)
            for t in m.tables_req
        )


def test_the_read_preference_is_sent_where_it_is_taken() -> None:
    options = {"scanner.log.read-preference": "remote_first"}
    for old in (False, True):
        with scripted(SCHEMA, buckets=1, old=old) as server:
            with opened(server, **options) as connection:
                table = done(connection.get_table(PATH))
                with done(table.new_scan().create_log_scanner()) as scanner:
                    scanner.subscribe(0, fluss.EARLIEST_OFFSET)
                    scanner.poll(100)
            fetched = server.sent(apis.FETCH_LOG)
            assert fetched
            assert all(m.HasField("read_preference") is not old for m in fetched)
