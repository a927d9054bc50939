"""A disk that is full and a clock that jumps, under the parts that copy a key table or show it.

A full disk is a typed error, and the next round goes on where the last whole one ended. A clock
that jumps changes no row.
"""

from __future__ import annotations

import os
import random
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy

import fluss_client as fluss
from fluss_client.errors import FlussError
from fluss_client.testing import LocalCluster
from fluss_orchestrate import (
    FlussCheckpointStore,
    IcebergSink,
    SqlSink,
    mirror_table,
    read_table,
    tier_table,
)
from fluss_orchestrate.console.service import Console, Settings
from fluss_orchestrate.core.lake import read_with_deletes
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.overview.samples import Samples
from tests.console.place import served
from tests.contract.tables import Tables, done
from tests.disk import full_disk
from tests.faults.recording import FaultRecorder
from tests.fix_either import own_database

KEYS = 200
TEXT_BYTES = 400
FILE_BYTES_MAX = 8 << 10
ROUNDS_LONG = 20
STEPS_S = [3_600.0, -3_600.0, 86_400.0 * 30, -86_400.0 * 30, 0.5, -0.5]
LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1d"}
MIRROR = "parts.rows"


class Parts:
    """A key table with a lake, and all that copies it."""

    def __init__(self, connection: fluss.FlussConnection, database: str, folder: Path) -> None:
        self.connection = connection
        self.folder = folder
        self.model: dict[int, str] = {}
        self.store = FlussCheckpointStore(connection, database, "checkpoints", replicas=1)
        tables = Tables(connection, done(connection.get_admin()), database)
        columns = {"id": pa.int64(), "text": pa.string()}
        self.table = tables.create(columns, ["id"], buckets=2, properties=LAKE)
        self.path = self.table.get_table_path()
        self._random = random.Random(7)
        self._rounds = 0

    def write(self) -> None:
        """Upsert some rows, whose text does not compress, and delete others."""
        keys = self._random.sample(range(KEYS), KEYS // 2)
        rows = {key: self._random.randbytes(TEXT_BYTES // 2).hex() for key in keys}
        gone = self._random.sample(sorted(self.model), min(5, len(self.model)))
        with self.table.new_upsert().create_writer() as writer:
            writer.write_arrow(pa.table({"id": list(rows), "text": list(rows.values())}))
            writer.delete_arrow(pa.RecordBatch.from_pydict({"id": pa.array(gone, pa.int64())}))
        self.model |= rows
        for key in gone:
            del self.model[key]

    def bring_up(self, part: str) -> None:
        """Let a part do its work once."""
        self._rounds += 1
        if part == "tiering of a key table":
            tier_table(self.connection, self.path, allow_tiering=True)
        elif part.startswith("mirror"):
            sink = self._sql() if part == "mirror in SQL" else self._iceberg()
            mirror_table(
                self.connection,
                self.path,
                sink,
                f"run-{self._rounds}",
                checkpoint=part.replace(" ", "-"),
                store=self.store,
            )

    def rows(self, part: str) -> dict[int, str]:
        """What a part has; an error if a key comes twice."""
        if part == "mirror in SQL":
            engine = sqlalchemy.create_engine(self._url)
            with engine.connect() as connection:
                found = list(connection.execute(sqlalchemy.text("SELECT id, text FROM rows")))
            engine.dispose()
        else:
            if part == "mirror in Iceberg":
                rows = read_with_deletes(open_catalog(self._catalog).load_table(MIRROR)).read_all()
            else:
                read = "lake" if part == "tiering of a key table" else "current"
                rows = read_table(self.connection, self.path, read=read).read_all()
            found = list(zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True))
        assert len(dict(found)) == len(found)
        return dict(found)

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.folder / 'mirror.db'}"

    @property
    def _catalog(self) -> dict[str, str]:
        place = self.folder / "iceberg"
        place.mkdir(exist_ok=True)
        uri = f"sqlite:///{self.folder / 'catalog.db'}"
        return {"type": "sql", "uri": uri, "warehouse": f"file://{place}"}

    def _sql(self) -> SqlSink:
        return SqlSink(self._url, "rows", form="mirror")

    def _iceberg(self) -> IcebergSink:
        return IcebergSink(self._catalog, MIRROR, form="mirror")


@pytest.fixture
def parts(lake_cluster: LocalCluster, tmp_path: Path) -> Iterator[Parts]:
    config = fluss.Config({"bootstrap.servers": lake_cluster.info.bootstrap_servers})
    with (
        done(fluss.FlussConnection.create(config)) as connection,
        own_database(connection, f"parts_{os.getpid()}") as database,
    ):
        yield Parts(connection, database, tmp_path)


COPIES = ["mirror in SQL", "mirror in Iceberg", "tiering of a key table"]
READING = ["state of a key table"]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", COPIES)
def test_a_full_disk_is_a_typed_error_and_the_next_round_goes_on(
    part: str, parts: Parts, record_fault: FaultRecorder, long_form: bool
) -> None:
    rounds = ROUNDS_LONG if long_form else 1
    parts.write()
    parts.bring_up(part)
    for _ in range(rounds):
        parts.write()
        with full_disk(file_bytes_max=FILE_BYTES_MAX), pytest.raises(FlussError) as raised:
            parts.bring_up(part)
        assert "disk" in raised.value.message
        parts.bring_up(part)
        assert parts.rows(part) == parts.model
    record_fault(f"disk full: {part}", rounds)


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the clock of this process so many seconds off."""
    real = time.time_ns
    shift_s = 0.0

    def set_off(seconds: float) -> None:
        nonlocal shift_s
        shift_s = seconds

    monkeypatch.setattr(time, "time_ns", lambda: real() + int(shift_s * 1e9))
    monkeypatch.setattr(time, "time", lambda: real() / 1e9 + shift_s)
    return set_off


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", [*COPIES, *READING])
def test_a_clock_that_jumps_changes_no_row(
    part: str,
    parts: Parts,
    jump: Callable[[float], None],
    record_fault: FaultRecorder,
    fault_seed: int,
    long_form: bool,
) -> None:
    rng = random.Random(fault_seed)
    steps = [s for _ in range(3) for s in STEPS_S] if long_form else rng.sample(STEPS_S, 3)
    for step in steps:
        parts.write()
        jump(step)
        parts.bring_up(part)
        assert parts.rows(part) == parts.model
    record_fault(f"clock steps: {part}", len(steps), seed=fault_seed)


@contextmanager
def console(parts: Parts, folder: Path) -> Iterator[Callable[[], int]]:
    """A console with samples; what it gives looks anew, and returns the size of the pages."""
    samples = Samples(folder / "samples.sqlite")
    settings = Settings(interval_s=0.5)
    with (
        Console(parts.connection, parts.store, samples, settings) as opened,
        served(opened, may_act=False) as url,
    ):

        def look() -> int:
            seen = opened.monitor.pass_now()
            assert seen.gathered is not None
            assert not seen.problem
            size = 0
            for page in ("/", "/tables", "/checkpoints", "/lakes", "/metrics"):
                with urllib.request.urlopen(url + page) as answer:
                    assert answer.status == 200
                    size += len(answer.read())
            return size

        assert opened.monitor.look(120).gathered is not None
        yield look


@pytest.mark.timeout(600)
def test_a_console_shows_its_pages_on_a_full_disk(
    parts: Parts, tmp_path: Path, record_fault: FaultRecorder
) -> None:
    """The samples of its charts are all that it writes; without room, charts end, not pages."""
    parts.bring_up("mirror in SQL")
    with console(parts, tmp_path) as look, full_disk(file_bytes_max=1):
        for _ in range(3):
            assert look() > 0
    record_fault("disk full: console", 1)


@pytest.mark.timeout(600)
def test_a_console_shows_its_pages_while_the_clock_jumps(
    parts: Parts, jump: Callable[[float], None], tmp_path: Path, record_fault: FaultRecorder
) -> None:
    parts.write()
    parts.bring_up("mirror in SQL")
    with console(parts, tmp_path) as look:
        for step in STEPS_S:
            jump(step)
            assert look() > 0
    record_fault("clock steps: console", len(STEPS_S))
