"""Spark with everything on S3: the input of loads, their staging and dead letters, and the lake.

Spark has no file system of Hadoop for S3 here: all of it goes through Arrow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import fluss_client as fluss
from fluss_client.engine import open_storage
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.lake import read_table, tier_table
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource
from tests.faults.recording import KILLS_PER_PART, FaultRecorder, parts_of
from tests.fix_storage import FaultyStore
from tests.storage.conftest import LAKE, VARIABLE, MakeTable, rows
from tests.storage.kills import ATTEMPTS_MAX, FAILING, KILLS_LONG, SEED

ROOT = Path(__file__).parents[2]
ROWS = 40_000


class SparkProgram:
    """`spark_program.py` with keys of the store in its environment."""

    def __init__(self, bootstrap: str, environment: dict[str, str]) -> None:
        reading, writing = os.pipe()
        # The answers have a pipe of their own: the child has it as its descriptor 3.
        command = f'exec "$0" -m tests.storage.spark_program {bootstrap} 3>&{writing}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, sys.executable],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[writing],
        )
        os.close(writing)
        self._answers = os.fdopen(reading)

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        line = self._answers.readline()
        if not line:
            assert self._process.stderr is not None
            raise AssertionError(self._process.stderr.read()[-3000:].decode())
        found: dict[str, Any] = json.loads(line)
        return found

    def load(self, spec: BulkLoadSpec, **more: Any) -> dict[str, Any]:
        text = spec.to_json()
        return self.ask(load=json.loads(text), **more)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._process.stdin.close()
        self._process.stderr.close()
        self._process.wait()
        self._answers.close()


def started(cluster: LocalCluster, storage: dict[str, str]) -> SparkProgram:
    """A program that has these keys of the store, and those of the lake."""
    keys = {
        VARIABLE + key.removeprefix("s3.").replace("-", "_").upper(): value
        for key, value in storage.items()
    }
    for key, value in (cluster.info.lake or {}).items():
        if key.startswith("s3."):
            name = key.replace(".", "__").replace("-", "_").upper()
            keys[f"FLUSS_LAKE_DEFAULT__{name}"] = value
    return SparkProgram(cluster.info.bootstrap_servers, keys)


@pytest.fixture(scope="module")
def program(storage_cluster: LocalCluster) -> Iterator[SparkProgram]:
    made = started(storage_cluster, dict(storage_cluster.info.storage or {}))
    yield made
    made.close()


def write_input(folder: str, files: int, count: int, changed: bool = False) -> list[str]:
    """Parquet files on S3 with the ids from 0 on; `changed` adds another version of each row."""
    paths = []
    for number in range(files):
        place = open_storage(f"{folder}/{number}.parquet")
        table = rows(number * count, (number + 1) * count)
        if changed:
            again = table.set_column(1, "text", pa.array(["changed"] * count))
            versions = [table.append_column("v", pa.array([1] * count))]
            versions.append(again.append_column("v", pa.array([2] * count)))
            table = pa.concat_tables(versions)
        with place.filesystem.open_output_stream(place.path) as stream:
            pq.write_table(table, stream, row_group_size=count // 3)
        paths.append(f"{folder}/{number}.parquet")
    return paths


def names_in(folder: str) -> list[str]:
    place = open_storage(folder)
    selector = fs.FileSelector(place.path, recursive=True, allow_not_found=True)
    found = place.filesystem.get_file_info(selector)
    return [info.path for info in found if info.type == fs.FileType.File]


def log_ids(connection: fluss.FlussConnection, table: fluss.FlussTable) -> list[int]:
    """The ids in the log, each as often as it was written."""
    found: list[int] = read_table(connection, table.get_table_path()).read_all()["id"].to_pylist()
    return sorted(found)


@pytest.mark.timeout(400)
def test_loads_and_frames(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    program: SparkProgram,
    own_keys: dict[str, str],
    folder: str,
) -> None:
    table = make_table(buckets=2)
    name = str(table.get_table_path())
    write_input(f"{folder}/in", 3, 300)
    spec = BulkLoadSpec(LoadSource("parquet", (f"{folder}/in",)), name, f"{name}/direct")
    done = program.load(spec)
    assert (done["rows"], done["staged"]) == (900, False)
    assert program.load(spec)["rows"] == 900
    assert log_ids(connection, table) == list(range(900))

    # A source on S3 that has to be staged, into a folder on S3; what does not fit goes there, too.
    keyed = make_table(["id"], 2)
    write_input(f"{folder}/versions", 2, 300, changed=True)
    staged = BulkLoadSpec(
        LoadSource("parquet", (f"{folder}/versions",)),
        str(keyed.get_table_path()),
        f"{name}/staged",
        transform_sql="SELECT IF(id = 7, NULL, id) AS id, text, v FROM source",
        order_by="v",
        staging=f"{folder}/staging",
        dead_letter=f"{folder}/letters",
        keep_staging=True,
    )
    done = program.load(staged)
    assert (done["rows"], done["staged"], done["rejected"]) == (599, True, 1)
    found = read_table(connection, keyed.get_table_path()).read_all()
    assert sorted(found["id"].to_pylist()) == [n for n in range(600) if n != 7]
    assert set(found["text"].to_pylist()) == {"changed"}
    assert len(names_in(f"{folder}/letters")) == 1
    assert any(path.endswith("_staged.json") for path in names_in(f"{folder}/staging"))
    assert own_keys["s3.secret-access-key"] not in staged.to_json()

    # A plain staged copy says the file of each row, and nothing is left of it.
    copied = BulkLoadSpec(
        LoadSource("parquet", (f"{folder}/versions",)),
        str(make_table(["id"], 2).get_table_path()),
        f"{name}/copied",
        order_by="v",
        columns={"text": "text"},
        staging=f"{folder}/more",
    )
    assert program.load(copied)["rows"] == 600
    assert names_in(f"{folder}/more") == []

    refused = BulkLoadSpec(LoadSource("csv", (f"{folder}/in.csv",)), name, f"{name}/csv")
    assert "SourceError: s3://" in program.load(refused)["error"]
    missing = BulkLoadSpec(LoadSource("parquet", (f"{folder}/none",)), name, f"{name}/none")
    assert "there is no such file or folder" in program.load(missing)["error"]


@pytest.mark.timeout(400)
def test_frames_of_a_lake(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    program: SparkProgram,
    lake_keys: None,
) -> None:
    """The warehouse is on S3, behind the REST catalog."""
    for keys in (None, ["id"]):
        table = make_table(keys, 2, **LAKE)
        name = str(table.get_table_path())
        create = table.new_upsert if keys else table.new_append
        with create().create_writer() as writer:
            writer.write_arrow(rows(0, 400))
        tier_table(connection, name, allow_tiering=True)
        with create().create_writer() as writer:
            writer.write_arrow(rows(400, 500))
        assert program.ask(read={"table": name, "read": "lake"})["ids"] == list(range(400))
        for read in ("current", "union"):
            assert program.ask(read={"table": name, "read": read})["ids"] == list(range(500))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", parts_of(KILLS_LONG, pytest.mark.long))
def test_every_row_once_through_kills_and_failing_requests(
    connection: fluss.FlussConnection,
    storage_cluster: LocalCluster,
    make_table: MakeTable,
    own_keys: dict[str, str],
    store: FaultyStore,
    request: pytest.FixtureRequest,
    folder: str,
    record_fault: FaultRecorder,
    part: int,
) -> None:
    """Python workers are killed, and 5 % of the requests to S3 fail."""
    store.chance = FAILING
    seed = SEED + part
    program = started(storage_cluster, {**own_keys, "s3.endpoint": store.endpoint})
    request.addfinalizer(program.close)
    table, keyed = make_table(buckets=2), make_table(["id"], 2)
    killed = loads = 0
    while killed < KILLS_PER_PART:
        first = loads * ROWS
        place = open_storage(f"{folder}/{loads}/in.parquet", own_keys)
        with place.filesystem.open_output_stream(place.path) as stream:
            pq.write_table(rows(first, first + ROWS), stream, row_group_size=ROWS // 8)
        for target, more in ((table, {}), (keyed, {"order_by": "text"})):
            name = str(target.get_table_path())
            spec = BulkLoadSpec(
                LoadSource("parquet", (f"{folder}/{loads}",)),
                name,
                f"{name}/{loads}",
                staging=f"{folder}/staging",
                batch_bytes=1 << 16,
                **more,  # type: ignore[arg-type]
            )
            for _ in range(ATTEMPTS_MAX):
                done = program.load(spec, kills=KILLS_PER_PART, seed=seed + loads)
                killed += done.get("killed", 0)
                if "error" not in done:
                    break
            assert done["rows"] == ROWS
        loads += 1
    count = loads * ROWS
    found = Counter(log_ids(connection, table))
    record_fault(
        "kill -9 of Spark's workers while loads are read from and staged on S3, and 5 % of the "
        "requests fail",
        killed,
        lost=len(set(range(count)) - found.keys()),
        doubled=found.total() - len(found),
        seed=seed,
        stages=store.struck,
    )
    assert sorted(found.elements()) == list(range(count))
    assert log_ids(connection, keyed) == list(range(count))
