"""Writers race with changes of the bucket count: no row is lost, doubled or misplaced."""

from __future__ import annotations

import random
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.backend.embedded.maintenance import check
from fluss_client.backend.embedded.store import layout
from tests.contract.tables import done
from tests.waiting import wait_until

ROUNDS_SHORT, ROUNDS_LONG = 5, 200
KEYS, WRITERS = 12, 2
PARTITIONS_KEPT = 6
COUNT_MAX = 9
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.int64())])
LOG = fluss.TablePath("fluss", "log")
KEYED = fluss.TablePath("fluss", "keyed")


class Race:
    """Two tables, the partitions that they have, and what was written into them."""

    def __init__(self, connection: fluss.FlussConnection, seed: int) -> None:
        self.connection = connection
        self.random = random.Random(seed)
        self.admin = done(connection.get_admin())
        self.counts: dict[str, int] = {}
        self.lines: dict[str, int] = {}
        self.newest: dict[tuple[int, str], int] = {}
        self.errors: list[BaseException] = []
        for path, keys in ((LOG, None), (KEYED, ["id", "day"])):
            schema = fluss.Schema(SCHEMA, primary_keys=keys)
            made = fluss.TableDescriptor(
                schema, partition_keys=["day"], bucket_keys=["id"], bucket_count=2
            )
            done(self.admin.create_table(path, made))
        # The writers live through all rounds: their tables say 2 buckets to the end.
        self.log = done(connection.get_table(LOG)).new_append().create_writer()
        self.keyed = [
            done(connection.get_table(KEYED)).new_upsert().create_writer() for _ in range(WRITERS)
        ]
        self.lookuper = done(connection.get_table(KEYED)).new_lookup().create_lookuper()

    def add(self, day: str) -> None:
        """Change the bucket count of both tables and create a partition, while others write."""
        count = self.random.randint(1, COUNT_MAX)
        for path in (LOG, KEYED):
            done(self.admin.alter_table(path, bucket_count=count))
            done(self.admin.create_partition(path, {"day": day}))
        self.counts[day] = count

    def run(self, number: int) -> None:
        """Write into the partitions of before and into the new one while it is made."""
        day = f"d{number}"
        known = list(self.counts)
        threads = [threading.Thread(target=self._guarded, args=(self.add, day))]
        threads += [
            threading.Thread(target=self._guarded, args=(self._upsert, at, number, known, day))
            for at in range(WRITERS)
        ]
        threads.append(threading.Thread(target=self._guarded, args=(self._append, known, day)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        if len(self.counts) > PARTITIONS_KEPT:
            self._drop(next(iter(self.counts)))

    def _guarded(self, work: Any, *args: Any) -> None:
        try:
            work(*args)
        except BaseException as error:  # noqa: BLE001 - raised on the thread of the test
            self.errors.append(error)

    def _upsert(self, at: int, number: int, known: list[str], day: str) -> None:
        writer = self.keyed[at]
        mine = list(range(at, KEYS, WRITERS))
        for target in [*known, day]:
            count = len(mine)
            rows = pa.table({"id": mine, "day": [target] * count, "v": [number] * count}, SCHEMA)
            self._when_made(lambda r=rows: writer.write_arrow(r))
            self.newest |= {(key, target): number for key in mine}
        done(writer.flush())

    def _append(self, known: list[str], day: str) -> None:
        for target in [*known, day]:
            rows = pa.table({"id": range(KEYS), "day": [target] * KEYS, "v": [0] * KEYS}, SCHEMA)
            self._when_made(lambda r=rows: self.log.write_arrow(r))
            self.lines[target] = self.lines.get(target, 0) + KEYS
        done(self.log.flush())

    def _when_made(self, write: Any) -> None:
        def is_written() -> bool:
            try:
                write()
            except errors.PartitionNotExistError:
                return False
            return True

        wait_until("the partition", is_written, pause_s=0.001)

    def _drop(self, day: str) -> None:
        for path in (LOG, KEYED):
            done(self.admin.drop_partition(path, {"day": day}))
        del self.counts[day], self.lines[day]
        self.newest = {place: v for place, v in self.newest.items() if place[1] != day}

    def check(self) -> None:
        """Every row is in the bucket of its partition's count, once, and is found there."""
        for path in (LOG, KEYED):
            info = done(self.admin.get_table_info(path))
            listed = done(self.admin.list_partition_infos(path))
            assert {p.partition_name: info.bucket_count_of(p) for p in listed} == self.counts
        stats = done(self.admin.get_table_stats(LOG))
        assert sum(stats.values()) == sum(self.lines.values())
        stats = done(self.admin.get_table_stats(KEYED))
        assert sum(stats.values()) == len(self.newest)
        places = [list(place) for place in self.newest]
        for lookuper in (self.lookuper, self._fresh_lookuper()):
            found = done(lookuper.lookup_many(places))
            assert [row["v"] for row in found] == list(self.newest.values())

    def _fresh_lookuper(self) -> fluss.Lookuper:
        return done(self.connection.get_table(KEYED)).new_lookup().create_lookuper()


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_row_is_lost_doubled_or_misplaced(tmp_path: Path, seed: int, long_form: bool) -> None:
    config = fluss.Config(
        {"bootstrap.servers": f"embedded:{tmp_path}", "embedded.synchronous": "off"}
    )
    connection = done(fluss.FlussConnection.create(config))
    try:
        race = Race(connection, seed)
        for number in range(ROUNDS_LONG if long_form else ROUNDS_SHORT):
            race.run(number)
            race.check()
    finally:
        connection.close()
    assert check(tmp_path) == []


def test_older_versions_refuse_a_directory_with_changed_counts(tmp_path: Path) -> None:
    config = fluss.Config({"bootstrap.servers": f"embedded:{tmp_path}"})

    def version() -> int:
        database = sqlite3.connect(tmp_path / layout.FILE_NAME)
        try:
            query = "SELECT value FROM meta WHERE name = 'format_version'"
            return int(database.execute(query).fetchone()[0])
        finally:
            database.close()

    connection = done(fluss.FlussConnection.create(config))
    try:
        race = Race(connection, 1)
        assert version() == layout.FORMAT_VERSION_NEW == 1
        done(race.admin.alter_table(LOG, bucket_count=7))
        assert version() == layout.FORMAT_VERSION == 2
        done(race.admin.drop_table(LOG))
    finally:
        connection.close()
    assert check(tmp_path) == []
