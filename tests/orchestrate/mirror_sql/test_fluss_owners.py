"""A Fluss table is written by loads or by one mirror, whoever comes first, and also in a race."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate import load_rows
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.lake.state import read_table
from fluss_orchestrate.core.loading import MirroredTableError, ownership, sending
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.overview.loads import LoadList
from fluss_orchestrate.core.sinks import FlussTableSink, SinkFormError
from fluss_orchestrate.core.sinks.fluss_mirror import FlussMirror
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource
from tests.contract.tables import Tables
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.mirror_sql.keyed_model import COLUMNS, KeyedModel
from tests.orchestrate.mirror_sql.mirrors import Mirror, fluss_mirror
from tests.waiting import WAIT_S

SEED = 20261119
RACES, RACES_LONG = 3, 60


class Target:
    """A source, the table of its mirror, and rows to load into that."""

    def __init__(self, tables: Tables, source: FlussConnection) -> None:
        self.model = KeyedModel(tables, random.Random(SEED))
        self.model.upsert(12)
        self.sink = fluss_mirror(tables, self.model, 2)
        self.path = TablePath.parse(self.sink.identity.partition("/")[2])
        self.mirror = Mirror(self.model, self.sink, source)
        self.source = source
        fields = [pa.field(name, kind) for name, kind in COLUMNS.items()]
        self.rows = pa.Table.from_pylist(
            [dict.fromkeys(COLUMNS) | {"id": 1000 + n} for n in range(40)], pa.schema(fields)
        )

    def load(self, load_id: str = "load", rows: Any = None, **options: Any) -> Any:
        given = self.rows if rows is None else rows
        return load_rows(self.source, self.path, given, load_id, ledger_replicas=1, **options)

    def breaking_off(self) -> pa.RecordBatchReader:
        """The rows, of which the last ones do not come."""

        def batches() -> Iterator[pa.RecordBatch]:
            yield self.rows.to_batches()[0].slice(0, 20)
            raise ZeroDivisionError

        return pa.RecordBatchReader.from_batches(self.rows.schema, batches())

    def ids(self) -> set[int]:
        """The ids in the table."""
        return set(read_table(self.source, self.path, ["id"]).read_all()["id"].to_pylist())


@pytest.fixture
def target(tables: Tables, source: FlussConnection) -> Target:
    return Target(tables, source)


def test_nothing_is_loaded_into_a_mirror(target: Target) -> None:
    target.mirror.run()
    wider = target.rows.append_column("extra", pa.nulls(target.rows.num_rows, pa.int64()))
    with pytest.raises(MirroredTableError, match=r"checkpoint 'mirror'.*drop this table") as caught:
        target.load(rows=wider, schema_policy="add_columns")
    assert caught.value.checkpoint == "mirror"
    info = target.source.get_table(target.path).result().get_table_info()
    assert "extra" not in info.get_column_names()
    spec = BulkLoadSpec(LoadSource("parquet", ("/nowhere",)), str(target.path), "bulk")
    with pytest.raises(MirroredTableError):
        run_bulk(target.source, spec)
    target.mirror.run()
    # Loads into the table that is mirrored are what reaches the mirror.
    load_rows(target.source, target.model.path, target.rows, "good", ledger_replicas=1)


def run_bulk(connection: FlussConnection, spec: BulkLoadSpec) -> None:
    """Run a bulk load; it ends before it would need a session of Spark."""
    from fluss_orchestrate.spark.loading.load import run_load

    properties = dict(connection.config.to_dict())
    nobody: Any = None
    run_load(nobody, spec, ClusterRef("default", properties), on_line=lambda line: None)


def test_rows_of_other_plans_are_not_added_to_a_mirror(target: Target) -> None:
    target.mirror.run()
    scan = IncrementalScan(
        target.source,
        target.model.path,
        "adds",
        store=CheckpointStore(MemoryEventLog()),
        metadata_columns=["_change_type"],
    )
    sink = FlussTableSink(target.source, target.path, ledger_replicas=1)
    with pytest.raises(SinkFormError, match="it is the mirror of checkpoint 'mirror'"):
        run_increment(scan, sink, "run")
    target.mirror.run()


def test_a_mirror_does_not_begin_while_a_load_is_unfinished(target: Target) -> None:
    with pytest.raises(ZeroDivisionError):
        target.load(rows=target.breaking_off())
    with pytest.raises(SinkFormError, match=r"load 'load' into it is not finished.*drop the table"):
        target.mirror.run()
    # The mirror gave the table up, so that the load can be finished.
    assert target.load().rows == target.rows.num_rows
    # The records of who writes into the table are no loads.
    table_id = target.source.get_table(target.path).result().get_table_info().table_id
    listed = LoadList(target.source).newest(100, {table_id: str(target.path)})
    assert [load.load_id for load in listed if load.table_id == table_id] == ["load"]
    with pytest.raises(SinkFormError, match="empty table"):
        target.mirror.run()


def held_up(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Callable[..., Any]:
    """Hold up the first call of a method when it has done its work.

    The result takes what calls the method, and what is done meanwhile.
    """
    real = getattr(owner, name)
    arrived, goes_on = threading.Event(), threading.Event()

    def call(*args: Any, **kwargs: Any) -> Any:
        done = real(*args, **kwargs)
        if not arrived.is_set():
            arrived.set()
            assert goes_on.wait(WAIT_S)
        return done

    monkeypatch.setattr(owner, name, call)

    def meanwhile(first: Callable[[], Any], then: Callable[[], Any]) -> Any:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(first)
            assert arrived.wait(WAIT_S)
            try:
                then()
            finally:
                goes_on.set()
            return running.result()

    return meanwhile


def test_a_mirror_begins_while_a_load_is_about_to_write(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile = held_up(monkeypatch, sending.PinnedLoad, "enter")

    def begin() -> None:
        with pytest.raises(SinkFormError, match="is not finished"):
            target.mirror.run()

    assert meanwhile(target.load, begin).rows == target.rows.num_rows
    assert len(target.ids()) == target.rows.num_rows


def test_a_load_begins_while_a_mirror_is_about_to_write(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile = held_up(monkeypatch, FlussMirror, "_is_empty")

    def begin() -> None:
        with pytest.raises(MirroredTableError):
            target.load()

    meanwhile(target.mirror.run, begin)
    with pytest.raises(MirroredTableError):
        target.load()
    target.mirror.run()


def test_a_load_that_ends_while_a_mirror_begins_is_seen(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows come before the claim, and are looked for after it."""
    meanwhile = held_up(monkeypatch, FlussMirror, "_check_target")

    def begin() -> None:
        with pytest.raises(SinkFormError, match="empty table"):
            target.mirror.run()

    meanwhile(begin, target.load)


def test_a_claim_that_was_not_decided_is_decided_by_the_next_run(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ownership.TableOwnership, "decide", dies)
        with pytest.raises(ZeroDivisionError):
            target.mirror.run()
    with pytest.raises(MirroredTableError):
        target.load()
    target.mirror.run()


def dies(*_: Any) -> Any:
    raise ZeroDivisionError


def succeeds(work: Callable[..., Any], *given: Any) -> bool:
    """Do the work; False if it gave way to others."""
    try:
        work(*given)
    except (MirroredTableError, SinkFormError):
        return False
    return True


@pytest.mark.timeout(3600)
def test_loads_and_a_mirror_race(tables: Tables, source: FlussConnection, long_form: bool) -> None:
    for _ in range(RACES_LONG if long_form else RACES):
        target = Target(tables, source)
        with ThreadPoolExecutor(3) as pool:
            begun = pool.submit(succeeds, target.mirror.run)
            loads = [pool.submit(succeeds, target.load, f"load-{n}") for n in range(2)]
            loaded = [one.result() for one in loads]
            is_mirror, is_loaded = begun.result(), any(loaded)
        # Whoever came first, no row of the others is there; both may have given way.
        assert not (is_mirror and is_loaded)
        if is_mirror:
            target.mirror.run()
        else:
            assert target.ids() == (set(target.rows["id"].to_pylist()) if is_loaded else set())


def test_one_table_is_the_mirror_of_one_source(
    tables: Tables, source: FlussConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before its first plan is finished, and under the name of the same checkpoint."""
    target = Target(tables, source)
    with monkeypatch.context() as patched:
        patched.setattr(sending.PinnedLoad, "run", dies)
        with pytest.raises(ZeroDivisionError):
            target.mirror.run()
    other = KeyedModel(tables, random.Random(SEED + 1))
    other.upsert(3)
    with pytest.raises(SinkFormError, match="a table has one mirror"):
        mirror_table(
            source,
            other.path,
            target.sink,
            "run",
            checkpoint="mirror",
            store=CheckpointStore(MemoryEventLog()),
        )
    target.mirror.run()
