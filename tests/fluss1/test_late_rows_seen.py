"""Late rows of expired partitions in what people and schedulers look at, on a scripted 1.0 server.

Lags, counts, versions, sensors and checks take the system partition for one of the table's. Where
they cannot, they raise an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import fluss_client as fluss
from fluss_client.engine import HISTORICAL_PARTITION, async_connection, backend_of, run_blocking
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from fluss_orchestrate.core.checkpoints import CheckpointStore, SqlCheckpointStore
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.report import checkpoint_lag
from fluss_orchestrate.core.conditions.tables import EndsNow, RowsCame
from fluss_orchestrate.core.errors import LateRowsError
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.incremental.planning.late_rows import late_rows_policy
from fluss_orchestrate.core.incremental.time.intervals import IntervalScan, find_boundary
from fluss_orchestrate.core.lake.covers import freeze_target, wait_for_snapshot
from fluss_orchestrate.core.lake.errors import WaitTimedOutError
from fluss_orchestrate.core.overview.actions import Actions, Order
from fluss_orchestrate.core.overview.gathering import Gatherer
from fluss_orchestrate.core.table_report import checkpoint_heads, report_table
from fluss_orchestrate.dagster import FlussResource, build_fluss_row_count_check
from fluss_orchestrate.dagster.work import row_count, table_info, table_version
from tests.cli.running import Cli
from tests.contract.tables import done
from tests.fluss1.server import DATABASE, NAME, ScriptedServer, scripted
from tests.fluss1.test_bucket_counts import KEYED, LOG, PATH, opened, write
from tests.fluss1.test_system_partitions import OLD, TAKES_LATE_ROWS, write_late
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.waiting import wait_until

WRITTEN, LATE = OLD.num_rows, 10


@contextmanager
def late_table(schema: fluss.Schema) -> Iterator[tuple[ScriptedServer, fluss.FlussConnection]]:
    """A table whose system partition is still empty; the ordinary one has rows."""
    options: Any = {"bucket_keys": ["id"], "properties": TAKES_LATE_ROWS}
    partitions = {"old": 2, HISTORICAL_PARTITION: 2}
    with scripted(schema, partitions, **options) as server, opened(server) as connection:
        write(done(connection.get_table(PATH)), OLD)
        yield server, connection


def committed(
    connection: fluss.FlussConnection, store: CheckpointStore, name: str, policy: str
) -> IncrementalScan:
    """A checkpoint that has read everything."""
    scan = IncrementalScan(connection, PATH, name, store=store, settle_ms=0, on_late_rows=policy)
    with scan.run("first") as run:
        run.reader().read_all()
    return scan


def test_lags_count_late_rows_unless_the_checkpoint_leaves_them_out() -> None:
    with late_table(LOG) as (server, connection):
        store = CheckpointStore(MemoryEventLog())
        for name, policy in (("all", "read"), ("some", "note")):
            committed(connection, store, name, policy)
        write_late(connection, server)
        server.on(apis.LIST_DATABASES, lambda _: pb.ListDatabasesResponse(database_name=[DATABASE]))
        server.on(apis.LIST_TABLES, lambda _: pb.ListTablesResponse(table_name=[NAME]))
        expected = {"all": LATE, "some": 0}
        for name, lag in expected.items():
            assert checkpoint_lag(connection, store, name).offsets == lag
        report = report_table(connection, PATH, checkpoint_heads(connection, store))
        assert {lag.name: lag.offsets for lag in report.lags} == expected
        assert report.rows == WRITTEN + LATE
        seen = Gatherer(connection, store).gather()
        assert {c.name: c.unread for c in seen.overview.checkpoints} == expected
        assert [t.rows for t in seen.overview.tables] == [WRITTEN + LATE]


@pytest.mark.parametrize("policy", ["read", "note"])
def test_a_reset_by_a_person_keeps_what_the_checkpoint_reads(policy: str) -> None:
    """The next run of the job, which has the policy, goes on."""
    with late_table(LOG) as (server, connection):
        store = CheckpointStore(MemoryEventLog())
        scan = committed(connection, store, "job", policy)
        write_late(connection, server)
        assert late_rows_policy(store.head("job")) == policy
        Actions(connection, store).reset("job", "latest", Order("a person", "by hand"))
        with scan.run("second") as run:
            assert run.reader().read_all().num_rows == 0


def test_counts_and_versions_of_a_log_table_have_its_late_rows() -> None:
    with late_table(LOG) as (server, connection):
        info = table_info(connection, PATH)
        before = table_version(connection, info)
        assert row_count(connection, info) == WRITTEN
        write_late(connection, server)
        assert row_count(connection, info) == WRITTEN + LATE
        assert table_version(connection, info) != before


def test_the_count_of_a_key_table_is_that_of_the_partitions_that_exist() -> None:
    with late_table(KEYED) as (server, connection):
        info = table_info(connection, PATH)
        held = row_count(connection, info)
        write_late(connection, server)
        assert row_count(connection, info) == held == 30


def test_late_rows_are_rows_that_came() -> None:
    with late_table(LOG) as (server, connection):
        core = async_connection(connection)
        before = run_blocking(EndsNow(PATH).ask(core))
        waiting = RowsCame(PATH, dict(before.latest), before.info.table_id)
        (look,) = waiting.looks(1.0)
        assert look.decide(before) is None
        write_late(connection, server)
        outcome = look.decide(run_blocking(EndsNow(PATH).ask(core)))
        assert outcome is not None
        assert outcome["rows"] == LATE


def test_a_lake_without_late_rows_is_behind_and_not_without_the_partition() -> None:
    with late_table(LOG) as (server, connection):
        write_late(connection, server)
        held = pb.GetLakeSnapshotResponse(table_id=7, snapshotId=1)
        server.on(apis.GET_LAKE_SNAPSHOT, lambda _: held)
        target = freeze_target(connection, PATH, "latest")
        assert sum(target.offsets.values()) == WRITTEN + LATE
        with pytest.raises(WaitTimedOutError):
            asyncio.run(
                wait_for_snapshot(connection, PATH, target, timeout_s=0.5, poll_interval_s=0.02)
            )


def test_a_time_is_looked_up_in_a_system_partition_that_appears_meanwhile() -> None:
    options: Any = {"bucket_keys": ["id"], "properties": TAKES_LATE_ROWS}
    with scripted(LOG, {"old": 2}, **options) as server, opened(server) as connection:
        write(done(connection.get_table(PATH)), OLD)
        scan = IncrementalScan(
            connection, PATH, "i", store=CheckpointStore(MemoryEventLog()), settle_ms=0
        )
        asked: list[Any] = []

        def appear(message: Any) -> None:
            if message.offset_type and not asked:
                server.add_partition(HISTORICAL_PARTITION, 2)
            asked.append(message)

        server.on(apis.LIST_OFFSETS, appear)
        core = async_connection(connection)
        backend = backend_of(connection)
        found = run_blocking(find_boundary(backend, core.config, scan.settings, 1))
        assert HISTORICAL_PARTITION in found.position.partitions.values()


def test_the_command_line_shows_the_offsets_of_late_rows(tmp_path: Path) -> None:
    with late_table(LOG) as (server, connection):
        write_late(connection, server)
        shown = Cli(tmp_path, server.bootstrap).json("offsets", str(PATH))
        assert sum(p["latest"] for p in shown if p["partition"] == HISTORICAL_PARTITION) == LATE


@pytest.mark.parametrize("policy", ["read", "note"])
def test_a_check_in_dagster_does_not_take_a_key_table_for_whole(policy: str) -> None:
    with late_table(KEYED) as (server, connection):
        write_late(connection, server)
        check = build_fluss_row_count_check(
            "orders", str(PATH), minimum=30, maximum=30, on_late_rows=policy
        )
        resource = FlussResource(bootstrap_servers=server.bootstrap)
        job = dg.define_asset_job("checks", dg.AssetSelection.all_asset_checks())
        made = dg.Definitions(asset_checks=[check], jobs=[job], resources={"fluss": resource})
        run = made.resolve_job_def("checks").execute_in_process
        if policy == "read":
            with pytest.raises(LateRowsError, match="cannot be read from Fluss"):
                run()
        else:
            (found,) = run().get_asset_check_evaluations()
            assert found.passed


def test_an_interval_says_when_another_policy_has_left_late_rows_out() -> None:
    with late_table(LOG) as (server, connection):
        write_late(connection, server)
        store = CheckpointStore(MemoryEventLog())
        noting, reading = (
            IntervalScan(connection, PATH, "i", store=store, settle_ms=0, on_late_rows=policy)
            for policy in ("note", "read")
        )
        after = now_ms() + 1
        wait_until("the end of the intervals", lambda: now_ms() > after + 3)
        for since in (after, after + 1):
            noting.plan("noted", since, since + 1)
        # It begins with the one and ends with the other.
        first = reading.plan("a", after, after + 2)
        assert first.ranges == ()
        head = store.require(first.name)
        assert head.details["late_rows"] == "not covered"
        second = reading.plan("b", after + 2, after + 3)
        assert "late_rows" not in store.require(second.name).details
        assert sum(r.count for r in second.ranges) == LATE


def test_a_reset_names_late_rows_by_their_partition(tmp_path: Path) -> None:
    with late_table(LOG) as (server, connection):
        write_late(connection, server)
        cli = Cli(
            tmp_path, server.bootstrap, FLUSS_CHECKPOINT_STORE=f"sqlite:///{tmp_path}/kept.db"
        )
        to = f"old/0=1,old/1=2,{HISTORICAL_PARTITION}/0=7,{HISTORICAL_PARTITION}/1=0"
        arguments = ["checkpoints", "reset", "job", "--table", str(PATH), "--yes", "--to", to]
        cli.json(*arguments)
        store = SqlCheckpointStore(f"sqlite:///{tmp_path}/kept.db")
        position = store.require("job").state.position
        store.close()
        assert position is not None
        late = server.partitions[HISTORICAL_PARTITION]
        assert position.offsets[late, 0] == 7
        assert checkpoint_lag(connection, store, "job").offsets == WRITTEN - 3 + LATE - 7
        store.close()
