"""The Parquet sink on S3: exactly once through kills and failing requests, errors that say why."""

from __future__ import annotations

import collections
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import fluss_client as fluss
from fluss_client.engine import open_storage
from fluss_client.errors import ConfigError, StorageRefusedError
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.checkpoints import CheckpointStore, FlussCheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import ParquetSink
from fluss_orchestrate.core.sinks import parquet as parquet_module
from tests.faults.recording import FaultRecorder, parts_of
from tests.fix_storage import FaultyStore
from tests.orchestrate.incremental.crasher import STAGES
from tests.orchestrate.incremental.test_crashes import Crashers
from tests.orchestrate.sinks.plans import expected_ids, ids, make_plan, read
from tests.storage.conftest import MakeTable, rows
from tests.storage.kills import KILLS_LONG, Killing


def files_in(folder: str) -> list[fs.FileInfo]:
    place = open_storage(folder)
    selector = fs.FileSelector(place.path, recursive=True, allow_not_found=True)
    found = place.filesystem.get_file_info(selector)
    return [info for info in found if info.type == fs.FileType.File]


def table_in(folder: str) -> pa.Table:
    place = open_storage(folder)
    return pa.concat_tables(
        pq.read_table(info.path, filesystem=place.filesystem) for info in files_in(folder)
    )


def test_a_plan_is_written_once_and_nothing_else_is_there(
    own_keys: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan((0, 5, 255), (2, 0, 10))
    sink = ParquetSink(f"{folder}/out")
    assert sink.already_done(plan) is None
    # Files beyond this size wait on disk until they are complete.
    monkeypatch.setattr(parquet_module, "SPOOL_BYTES", 1000)
    done = sink.write(plan, read)
    assert done.rows == 260
    assert sorted(info.base_name for info in files_in(folder)) == sorted(
        sink.file_name(plan, part) for part in plan.ranges
    )
    assert ids(table_in(folder)) == expected_ids(plan)
    again = ParquetSink(f"{folder.replace('s3://', 's3a://')}/out")
    assert again.identity == sink.identity
    found = again.already_done(plan)
    assert found is not None
    assert (found.rows, found.bytes, found.moved) == (done.rows, done.bytes, 0)
    assert sink.discard(plan) == 2
    assert sink.already_done(plan) is None


def test_a_reader_that_fails_leaves_no_object(own_keys: dict[str, str], folder: str) -> None:
    plan = make_plan((0, 0, 250))

    def dies(part: ScanPlan) -> pa.RecordBatchReader:
        reader = read(part)

        def some() -> Iterator[pa.RecordBatch]:
            yield reader.read_next_batch()
            raise OSError("the line broke")

        return pa.RecordBatchReader.from_batches(reader.schema, some())

    with pytest.raises(OSError, match="the line broke"):
        ParquetSink(folder).write(plan, dies)
    assert files_in(folder) == []


def test_credentials_stay_here(own_keys: dict[str, str], folder: str) -> None:
    sink = ParquetSink(folder)
    sink.write(make_plan((0, 0, 5)), read)
    assert own_keys["s3.secret-access-key"].encode() not in pickle.dumps(sink)
    assert own_keys["s3.secret-access-key"] not in repr(vars(sink))
    with pytest.raises(ConfigError, match="never pickled"):
        pickle.dumps(ParquetSink(folder, storage=own_keys))
    opened = open_storage(folder)
    with pytest.raises(ConfigError, match="never pickled"):
        pickle.dumps(ParquetSink(opened.path, filesystem=opened.filesystem))


@pytest.mark.parametrize(
    ("bucket", "changed", "says"),
    [
        ("no-such-bucket", {}, "there is no bucket 'no-such-bucket'"),
        ("fluss", {"s3.access-key-id": "other"}, "does not know the access key"),
        ("fluss", {"s3.secret-access-key": "wrong"}, "does not belong to the access key"),
    ],
)
def test_what_the_server_refuses_is_one_sentence(
    storage_cluster: LocalCluster, bucket: str, changed: dict[str, str], says: str
) -> None:
    storage = {**(storage_cluster.info.storage or {}), **changed}
    sink = ParquetSink(f"s3://{bucket}/refused", storage=storage)
    with pytest.raises(StorageRefusedError, match=says) as told:
        sink.write(make_plan((0, 0, 5)), read)
    assert storage["s3.secret-access-key"] not in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((403, "AccessDenied", "Access Denied"), "have no permission"),
        (
            (400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong"),
            "in another region: set s3.region",
        ),
        ((403, "RequestTimeTooSkewed", "too large"), r"set the clock \(NTP\)"),
    ],
)
def test_what_aws_refuses_is_one_sentence(
    storage_cluster: LocalCluster,
    store: FaultyStore,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[int, str, str],
    says: str,
) -> None:
    """In the words of AWS, which the local server does not speak."""
    from fluss_client.storage import filesystems

    monkeypatch.setattr(filesystems, "S3_ATTEMPTS_MAX", 1)
    storage = {**(storage_cluster.info.storage or {}), "s3.endpoint": store.endpoint}
    store.answer = answer
    with pytest.raises(StorageRefusedError, match=says):
        ParquetSink("s3://fluss/refused", storage=storage).write(make_plan((0, 0, 5)), read)


def test_a_wrong_clock_is_told(
    storage_cluster: LocalCluster, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server itself sees that the request was signed an hour ago."""
    from fluss_client.storage import filesystems

    monkeypatch.setattr(filesystems, "S3_ATTEMPTS_MAX", 1)
    storage = {**(storage_cluster.info.storage or {}), "s3.endpoint": store.endpoint}
    store.shift_s = -3600
    with pytest.raises(StorageRefusedError, match=r"set the clock \(NTP\)"):
        ParquetSink("s3://fluss/refused", storage=storage).already_done(make_plan((0, 0, 5)))


def test_a_bucket_of_aws_needs_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(bucket: str) -> str:
        raise OSError("no network")

    monkeypatch.setattr(fs, "resolve_s3_region", unknown)
    with pytest.raises(ConfigError, match=r"region of bucket fluss.*set s3.region"):
        ParquetSink("s3://fluss/out").already_done(make_plan((0, 0, 5)))


@pytest.mark.timeout(300)
def test_increments_through_failing_requests(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    store: FaultyStore,
    own_keys: dict[str, str],
    folder: str,
    long_form: bool,
    record_fault: FaultRecorder,
) -> None:
    """5 % of the requests fail; a run that fails is repeated, and each row is there once."""
    table = make_table(buckets=3)
    kept = FlussCheckpointStore(connection, "storage", "checkpoints", replicas=1)
    path = str(table.get_table_path())
    store.chance = 0.05
    rounds = 300 if long_form else 8
    for number in range(rounds):
        with table.new_append().create_writer() as writer:
            writer.write_arrow(rows(number * 100, number * 100 + 100))
        scan = IncrementalScan(connection, path, path, CheckpointStore(kept.log))
        run_increment(scan, ParquetSink(folder), f"run-{number}")
    found = collections.Counter(table_in(folder)["id"].to_pylist())
    count = rounds * 100
    record_fault(
        "5 % of the requests to S3 fail (Parquet sink)",
        store.struck.total(),
        lost=len(set(range(count)) - found.keys()),
        doubled=found.total() - len(found),
        seed=20261118,
        stages=store.struck,
    )
    assert sorted(found.elements()) == list(range(count))


@pytest.fixture
def crashers(store: FaultyStore, own_keys: dict[str, str]) -> Iterator[Crashers]:
    made = Crashers()  # it inherits the environment, with the proxy and the keys of the store
    yield made
    made.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", parts_of(KILLS_LONG))
def test_every_row_once_through_kills(
    connection: fluss.FlussConnection,
    storage_cluster: LocalCluster,
    make_table: MakeTable,
    crashers: Crashers,
    store: FaultyStore,
    folder: str,
    long_form: bool,
    part: int,
    record_fault: FaultRecorder,
) -> None:
    """In the long form 5 % of the requests to S3 fail, too; a run that fails is repeated."""
    table = make_table(buckets=3)
    name = str(table.get_table_path())
    spec: dict[str, Any] = {
        "config": {"bootstrap.servers": storage_cluster.info.bootstrap_servers},
        "table": name,
        "database": "storage",
        "store_table": "crashes",
        "name": name,
        "sink": "parquet",
        "folder": folder,
    }
    stages = ["in the read", "in the sink", "between sink and commit", *STAGES]
    killing = Killing(table, crashers, store, spec, part, long_form)
    killing.run(stages, stages[:6])
    store.chance = 0.0
    killing.judge(
        lambda: table_in(folder)["id"].to_pylist(),
        record_fault,
        "kill -9 of incremental jobs (Parquet on S3)",
    )
    assert all(info.base_name.endswith(".parquet") for info in files_in(folder))
