"""Maintenance: fewer files and snapshots, the same rows, and nothing lost that somebody needs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError, LakeSnapshotNotExistError
from fluss_orchestrate.core.lake import (
    LakeContendedError,
    LakeMaintenance,
    LakeRangeError,
    MaintenanceSettings,
    NoLakeError,
    key_reader,
    known_lake,
    lake_status,
    maintain_lake,
    pin_lake,
    read_lake_offsets,
    read_table,
    tier_table,
)
from fluss_orchestrate.core.lake.equality_deletes import live_files
from fluss_orchestrate.core.lake.maintenance import expiry
from fluss_orchestrate.core.lake.maintenance import run as maintenance
from tests.orchestrate.lake.key_programs import KeyTable, make_key_table
from tests.orchestrate.lake.tables import append, as_rows, full_scan, lake_rows, lake_table

NewTable = Callable[..., TablePath]
NOW = MaintenanceSettings(snapshot_age_ms=0, keep_snapshots=1)
ROUNDS_LONG = 200


def rounds(table: KeyTable, count: int) -> None:
    """Small rounds of tiering with upserts and deletes."""
    for at in range(count):
        table.upsert([at % 24, (at * 5) % 24, (at * 7 + 1) % 24])
        table.delete([(at * 3) % 24])
        table.tier()


def snapshots_of(table: Any) -> set[int]:
    return {snapshot.snapshot_id for snapshot in table.metadata.snapshots}


def maintain(table: KeyTable, settings: MaintenanceSettings, **options: Any) -> LakeMaintenance:
    """Maintain the lake of a table, and write down the snapshot that this made."""
    done = maintain_lake(table.connection, table.path, settings=settings, **options)
    if done.snapshot_id is not None:
        table.snapshots.add(done.snapshot_id)
    return done


def known_to_fluss(table: KeyTable) -> set[int]:
    """The snapshots whose offsets Fluss keeps, whether Iceberg still has them or not."""
    admin = table.connection.get_admin().result()
    found = set()
    for snapshot_id in table.snapshots:
        try:
            found.add(admin.get_lake_snapshot(table.path, snapshot_id).result().snapshot_id)
        except LakeSnapshotNotExistError:
            continue
    return found


def paths_of(table: Any) -> list[Path]:
    """Every file below the table's location."""
    root = Path(urlsplit(table.location()).path)
    return [path for path in root.rglob("*") if path.is_file()]


def test_a_key_table_becomes_small_again(
    connection: FlussConnection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_lake, "SNAPSHOTS_KEPT", 3)
    table = make_key_table(connection, database, partitioned=True)
    rounds(table, 6)
    before = snapshots_of(table.iceberg())
    planned = maintain(table, NOW, dry_run=True)
    assert snapshots_of(table.iceberg()) == before, "a dry run changes nothing"
    done = maintain(table, NOW)
    assert done.files_rewritten == planned.files_rewritten > 4
    assert done.deletes_removed == planned.deletes_removed > 0
    assert done.files_after <= 4 < done.files_before
    assert done.snapshots_expired > 0
    assert done.files_deleted > 0
    live = live_files(table.iceberg())
    assert not any(file.positions or file.equalities for file in live)
    assert snapshots_of(table.iceberg()) >= known_to_fluss(table) != set()
    assert lake_status(connection, table.path).snapshot_id == done.snapshot_id
    table.check()
    again = maintain_lake(connection, table.path, settings=NOW)
    assert (again.files_rewritten, again.snapshot_id) == (0, done.snapshot_id)
    rounds(table, 2)
    table.check()


def test_a_log_table_keeps_its_order(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(layout="both", buckets=2)
    for at in range(0, 120, 40):
        append(connection, path, at, at + 40)
        tier_table(connection, path, allow_tiering=True)
    done = maintain_lake(connection, path, settings=NOW)
    assert done.files_after == 4
    assert lake_rows(connection, path) == as_rows(full_scan(connection, path))
    stop = {(b.partition, b.bucket): b.latest for b in lake_status(connection, path).buckets}
    for place, end in stop.items():
        found = read_lake_offsets(connection, path, place, 3, end, metadata_columns=["_offset"])
        assert found.read_all().column("_offset").to_pylist() == list(range(3, end))
    append(connection, path, 120, 130)
    tier_table(connection, path, allow_tiering=True)
    assert read_table(connection, path).read_all().num_rows == 130


def test_files_of_a_group_that_is_large_enough_stay(
    connection: FlussConnection, database: str
) -> None:
    table = make_key_table(connection, database, buckets=1)
    table.upsert(list(range(20)))
    table.tier()
    large = live_files(table.iceberg())[0].file.file_path
    table.upsert([30])
    table.tier()
    table.upsert([31])
    table.tier()
    settings = MaintenanceSettings(target_file_bytes=1, expire=False, remove_orphans=False)
    assert maintain_lake(connection, table.path, settings=settings).files_rewritten == 0
    assert large in {live.file.file_path for live in live_files(table.iceberg())}
    table.check()


@pytest.mark.timeout(1800)
def test_beside_tiering_and_readers(
    connection: FlussConnection, database: str, long_form: bool
) -> None:
    """Rows are right at every moment; the files are few in the end."""
    table = make_key_table(connection, database)
    rounds(table, ROUNDS_LONG if long_form else 4)
    errors: list[BaseException] = []
    stop = threading.Event()

    def repeat(act: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            while not stop.is_set():
                try:
                    act()
                except LakeContendedError:
                    continue
                except BaseException as error:
                    errors.append(error)
                    raise

        return run

    settings = MaintenanceSettings(snapshot_age_ms=20_000, keep_snapshots=2)
    acts = [
        lambda: maintain(table, settings),
        table.check_lake_beside,
        table.check_union_beside,
    ]
    threads = [threading.Thread(target=repeat(act)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        rounds(table, 40 if long_form else 6)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    table.tier()
    done = maintain(table, NOW)
    assert done.files_after <= 2, "one per bucket, which is the fewest that there can be"
    needed = known_to_fluss(table)
    assert len(needed) > 1
    assert snapshots_of(table.iceberg()) >= needed
    table.check()


def test_a_commit_that_loses_is_made_again(
    connection: FlussConnection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiering commits a delete of a row between the compaction's write and its commit."""
    table = make_key_table(connection, database, buckets=1)
    rounds(table, 3)
    real, calls = maintenance.commit_rewrite, []

    def late(*args: Any, **more: Any) -> int:
        calls.append(args)
        if len(calls) == 1:
            table.upsert([1, 2])
            table.delete([0, 3, 5])
            table.tier()
        return real(*args, **more)

    monkeypatch.setattr(maintenance, "commit_rewrite", late)
    writes = []
    write = maintenance.compaction.write_compacted
    monkeypatch.setattr(
        maintenance.compaction,
        "write_compacted",
        lambda *args: writes.append(args) or write(*args),
    )
    maintain_lake(connection, table.path, settings=NOW)
    assert (len(calls), len(writes)) == (2, 1), "the files were not written again"
    table.check()
    rounds(table, 1)
    table.check()


def test_killed_between_the_commits(
    connection: FlussConnection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_key_table(connection, database, buckets=1)
    rounds(table, 3)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(maintenance.KnownLake, "tell", die)
        with pytest.raises(KeyboardInterrupt):
            maintain_lake(connection, table.path, settings=NOW)
    known = lake_status(connection, table.path).snapshot_id
    assert known != table.iceberg().current_snapshot().snapshot_id
    table.check()
    rounds(table, 1)
    table.check()


def test_pins_and_orphans(
    connection: FlussConnection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_lake, "SNAPSHOTS_KEPT", 2)
    table = make_key_table(connection, database, buckets=1)
    rounds(table, 1)
    with pin_lake(connection, table.path) as pinned:
        rounds(table, 3)
        maintain_lake(connection, table.path, settings=NOW)
        assert pinned in snapshots_of(table.iceberg())
        old = Path(urlsplit(table.iceberg().location()).path) / "data" / "lost.parquet"
        old.write_bytes(b"x" * 10)
        young = old.with_name("young.parquet")
        young.write_bytes(b"y")
        long_ago = time.time() - 4 * 24 * 3600
        for path in [*paths_of(table.iceberg()), old]:
            if path != young:
                os.utime(path, (long_ago, long_ago))
        planned = maintain_lake(connection, table.path, settings=NOW, dry_run=True)
        assert old.exists()
        done = maintain_lake(connection, table.path, settings=NOW)
        assert done.orphans_deleted == planned.orphans_deleted >= 1
        assert not old.exists()
        assert young.exists()
        table.check()
    maintain_lake(connection, table.path, settings=NOW)
    assert pinned not in snapshots_of(table.iceberg())
    table.check()


@pytest.mark.parametrize("moment", ["files_of", "remove_snapshots"])
def test_two_runs_at_once(
    connection: FlussConnection, database: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Another run expires the same snapshots before this one has read them, or has removed them."""
    monkeypatch.setattr(known_lake, "SNAPSHOTS_KEPT", 2)
    table = make_key_table(connection, database, buckets=1)
    rounds(table, 4)
    real, others = getattr(expiry, moment), []

    def late(*arguments: Any) -> Any:
        if not others:
            others.append(None)
            others.append(maintain(table, NOW))
        return real(*arguments)

    monkeypatch.setattr(expiry, moment, late)
    done = maintain(table, NOW)
    assert others[1].snapshots_expired > 0
    assert done.snapshots_expired == 0
    assert snapshots_of(table.iceberg()) >= known_to_fluss(table)
    table.check()


def test_a_snapshot_that_is_expired_while_it_is_read(
    connection: FlussConnection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_lake, "SNAPSHOTS_KEPT", 1)
    table = make_key_table(connection, database, buckets=1)
    rounds(table, 2)
    real = key_reader.read_live

    def late(*arguments: Any, **options: Any) -> Any:
        for _ in range(2):
            rounds(table, 2)
            maintain(table, NOW)
        return real(*arguments, **options)

    for read in ("lake", "union"):
        with monkeypatch.context() as patched:
            patched.setattr(key_reader, "read_live", late)
            with pytest.raises(LakeRangeError, match="expired while it was read"):
                table.rows(read=read)
    table.check()


def test_settings_and_tables_that_do_not_fit(
    connection: FlussConnection, new_table: NewTable
) -> None:
    with pytest.raises(ConfigError, match="orphan_age_ms"):
        MaintenanceSettings(orphan_age_ms=0)
    with pytest.raises(ConfigError, match="at least"):
        MaintenanceSettings(keep_snapshots=0)
    path = new_table(properties={"table.datalake.enabled": "false"})
    with pytest.raises(NoLakeError):
        maintain_lake(connection, path)


def test_a_lake_without_rows(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table()
    done = maintain_lake(connection, path)
    assert (done.files_before, done.files_after, done.snapshot_id) == (0, 0, None)
    assert lake_table(connection, path).current_snapshot() is None
