"""A history in SQL has every version of every key, as a model of the changelog says."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from fluss_client import ChangeType, FlussConnection, OffsetSpec, RecordBatch, TableBucket
from fluss_client.engine import backend_of, read_ranges, run_blocking
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.mirror.table import mirror_scan, mirror_table
from fluss_orchestrate.core.sinks import SqlSink
from tests.contract.tables import Tables
from tests.fix_postgres import new_database
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.mirror_sql.keyed_model import KeyedModel, Place

SEED = 20261119
PROGRAMS, PROGRAMS_LONG = 2, 25
STEPS = 12
SOME_TIME = "closed by a drop or a rebuild"
QUERY = (
    'SELECT _generation, _partition_id, _bucket, _offset, id, day, "text", valid_from, valid_to, '
    'is_current FROM "History"'
)


@dataclass
class Version:
    """One version of a row; times are milliseconds since 1970."""

    generation: int
    place: Place
    offset: int
    row: dict[str, Any]
    begin: int | None
    end: int | str | None = None

    def shown(self) -> tuple[Any, ...]:
        partition_id, bucket = self.place
        where = (self.generation, -1 if partition_id is None else partition_id, bucket, self.offset)
        values = (self.row["id"], self.row["day"], self.row["text"])
        return (*where, *values, self.begin, self.end, self.end is None)


class HistoryModel:
    """What a history must have. It reads the changelog after every change of the table."""

    def __init__(self, model: KeyedModel, connection: FlussConnection) -> None:
        self.model = model
        self.connection = connection
        self.records: dict[Place, list[tuple[int, int, ChangeType, dict[str, Any]]]] = {}
        self.versions: list[Version] = []
        self.current: dict[tuple[Place, tuple[Any, ...]], Version] = {}
        self.generation: int | None = None
        self.at: dict[Place, int] = {}

    def collect(self) -> None:
        """Read the changes since the last time, of the partitions that are there."""
        info, backend = self.model.table.get_table_info(), backend_of(self.connection)
        ranges = {}
        for partition_id in self.model.partition_ids:
            count = run_blocking(backend.bucket_count(info, partition_id))
            latest = backend.list_offsets(info, partition_id, range(count), OffsetSpec.latest())
            for bucket, end in run_blocking(latest).items():
                known = self.records.setdefault((partition_id, bucket), [])
                begin = known[-1][0] + 1 if known else 0
                if end > begin:
                    key = TableBucket(info.table_id, bucket, partition_id=partition_id)
                    ranges[key] = (begin, end)

        async def changes() -> list[RecordBatch]:
            config = self.connection.config
            return [b async for b in read_ranges(backend, info, ranges, config=config)]

        for batch in run_blocking(changes()) if ranges else []:
            assert batch.change_types is not None
            known = self.records[batch.bucket.partition_id, batch.bucket.bucket_id]
            kinds = [ChangeType(kind) for kind in batch.change_types.to_pylist()]
            for number, row in enumerate(batch.batch.to_pylist()):
                offset = batch.base_offset + number
                known.append((offset, batch.timestamp, kinds[number], row))

    def advance(self, position: dict[Place, int], generation: int) -> None:
        """Apply what a run has brought, which ended at a position."""
        if generation != self.generation:
            self._end(list(self.current))
            self.generation = generation
            for place, offset in position.items():
                for key, row in self.model.at[place][offset].items():
                    self._begin(place, key, -1, row, None)
        else:
            self._end([one for one in self.current if one[0] not in position])
            for place, offset in position.items():
                self._apply(place, self.at.get(place, 0), offset)
        self.at = dict(position)

    def _apply(self, place: Place, begin: int, end: int) -> None:
        for offset, time, kind, row in self.records.get(place, []):
            if not begin <= offset < end or kind == ChangeType.UpdateBefore:
                continue
            key = tuple(row[name] for name in self.model.key)
            ended = self.current.pop((place, key), None)
            if ended is not None:
                ended.end = time
            if kind != ChangeType.Delete:
                self._begin(place, key, offset, row, time)

    def _begin(
        self, place: Place, key: tuple[Any, ...], offset: int, row: dict[str, Any], time: int | None
    ) -> None:
        assert self.generation is not None
        made = Version(self.generation, place, offset, row, time)
        self.versions.append(made)
        self.current[place, key] = made

    def _end(self, keys: list[tuple[Place, tuple[Any, ...]]]) -> None:
        for key in keys:
            self.current.pop(key).end = SOME_TIME


def stored(url: str) -> list[tuple[Any, ...]]:
    """The rows of the history, with times as milliseconds."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    query = sa.text(QUERY).columns(
        valid_from=sa.DateTime(), valid_to=sa.DateTime(), is_current=sa.Boolean()
    )
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(query)]
    return [(*row[:-3], millis(row[-3]), millis(row[-2]), row[-1]) for row in rows]


def millis(value: dt.datetime | None) -> int | None:
    if value is None:
        return None
    aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    return (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


class History:
    """A history that is run and rebuilt by a test, and its model."""

    def __init__(self, model: KeyedModel, connection: FlussConnection, url: str) -> None:
        self.sink = SqlSink(url, "History", form="history", schema_policy="add_columns")
        self.url = url
        self.model = model
        self.connection = connection
        self.store = CheckpointStore(MemoryEventLog())
        self.wanted = HistoryModel(model, connection)
        self.runs = 0

    def step(self) -> None:
        self.wanted.collect()
        self.model.step()
        self.wanted.collect()

    def run(self, **options: Any) -> None:
        self.runs += 1
        mirror_table(
            self.connection,
            self.model.path,
            self.sink,
            options.pop("run_key", f"run-{self.runs}"),
            checkpoint="history",
            store=self.store,
            scan_options={"settle_ms": 0},
            **options,
        )
        self.check()

    def reset(self) -> None:
        scan = mirror_scan(
            self.connection, self.model.path, "history", form="history", store=self.store
        )
        scan.reset("start", "a test", abandon_pending=True)

    def check(self) -> None:
        position = self.sink.position("history")
        head = self.store.head("history")
        assert position is not None
        assert head is not None
        generation = head.state.generation
        self.wanted.advance(
            dict(position.offsets), -1 if generation is None else generation.sequence
        )
        found = {row[:7]: row[7:] for row in stored(self.url)}
        wanted = {v.shown()[:7]: v.shown()[7:] for v in self.wanted.versions}
        assert found.keys() == wanted.keys()
        assert len(wanted) == len(self.wanted.versions)
        for key, (begin, end, is_current) in wanted.items():
            if end == SOME_TIME:
                assert found[key][1] is not None
                assert found[key][1] >= (begin or 0)
                end = found[key][1]
            assert found[key] == (begin, end, is_current), key


@pytest.mark.timeout(1800)
def test_random_programs(
    tables: Tables, source: FlussConnection, sql_url: str, long_form: bool, tmp_path: Any
) -> None:
    for number in range(PROGRAMS_LONG if long_form else PROGRAMS):
        rng = random.Random(SEED + number)
        print("seed", SEED + number)
        url = f"sqlite:///{tmp_path}/history{number}.db"
        if not sql_url.startswith("sqlite"):
            url = new_database(sql_url)
        model = KeyedModel(tables, rng, partitioned=number % 2 == 0, buckets=rng.randrange(1, 4))
        history = History(model, source, url)
        for _ in range(rng.randrange(4)):
            history.step()
        history.run()
        for _ in range(STEPS):
            kind = rng.random()
            if kind < 0.6:
                history.step()
            elif kind < 0.9:
                history.run(max_offsets=rng.choice([None, rng.randrange(1, 12)]))
            elif kind < 0.95:
                history.run(run_key=f"run-{rng.randrange(1, history.runs + 1)}")
            else:
                history.reset()
                history.run()
        history.run()
