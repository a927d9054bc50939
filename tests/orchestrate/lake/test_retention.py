"""What retention took from the log comes back from the lake, exactly, in the same stream."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

from fluss_client import (
    Config,
    FlussConnection,
    OffsetSpec,
    Schema,
    TableDescriptor,
    TablePath,
)
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.errors import RetentionPassedError
from fluss_orchestrate.core.incremental.scan import IncrementalScan
from fluss_orchestrate.core.lake import lake_reader, tier_table
from tests.fix_cluster import discard
from tests.waiting import scaled, wait_until

COLUMNS = pa.schema([("id", pa.int64()), ("text", pa.string())])
BATCH_ROWS = 100
TEXT_BYTES = 600
PATIENCE_S = 120
PATH = TablePath("lake_retention", "events")


@pytest.fixture(params=["embedded", "cluster"])
def expiring(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FlussConnection]:
    """A lake whose logs lose their rows after two seconds, once those are in the lake."""
    folder = tmp_path_factory.mktemp("expiring")
    cluster = None
    address = f"embedded:{folder}"
    if request.param == "cluster":
        request.getfixturevalue("server_jars")
        cluster = LocalCluster(
            folder / "cluster",
            tablet_servers=1,
            lake="iceberg",
            config={"remote.log.task-interval-duration": "1s", "log.segment.file-size": "100kb"},
        )
        address = cluster.up().bootstrap_servers
    try:
        with FlussConnection.create(Config({"bootstrap.servers": address})).result() as made:
            yield made
    finally:
        if cluster is not None:
            discard(cluster)


def append(connection: FlussConnection, first: int) -> int:
    writer = connection.get_table(PATH).result().new_append().create_writer()
    numbers = range(first, first + BATCH_ROWS)
    texts = [os.urandom(TEXT_BYTES // 2).hex() for _ in numbers]
    writer.write_arrow_batch(pa.record_batch([list(numbers), texts], schema=COLUMNS))
    writer.flush().result()
    return first + BATCH_ROWS


@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_the_lake_gives_what_retention_took(expiring: FlussConnection) -> None:
    admin = expiring.get_admin().result()
    admin.create_database(PATH.database_name).result()
    properties = {
        "table.datalake.enabled": "true",
        "table.log.ttl": f"{scaled(2):.0f}s",
        "table.log.tiered.local-segments": "1",
    }
    descriptor = TableDescriptor(Schema(COLUMNS), bucket_count=1, properties=properties)
    admin.create_table(PATH, descriptor).result()
    end = append(expiring, 0)
    options = {"metadata_columns": ("_offset",), "settle_ms": 0}
    with IncrementalScan(expiring, PATH, "job", **options).run("one") as run:
        assert run.to_arrow().num_rows == end

    last = end

    def earliest_after_more() -> int:
        nonlocal last
        last = append(expiring, max(end, _latest(expiring)))
        tier_table(expiring, PATH, allow_tiering=True)
        return int(admin.list_offsets(PATH, [0], OffsetSpec.earliest()).result()[0])

    wait_until(
        "retention",
        lambda: earliest_after_more() >= end + 2 * BATCH_ROWS,
        PATIENCE_S,
        pause_s=0.2,
    )

    with pytest.raises(RetentionPassedError):
        IncrementalScan(expiring, PATH, "job", **options).plan("two")
    scan = IncrementalScan(
        expiring,
        PATH,
        "job",
        on_retention="lake",
        lake_reader=lake_reader(expiring),
        **options,
    )
    with scan.run("two") as run:
        found = run.to_arrow()
    assert found.column("_offset").to_pylist() == list(range(end, last))
    assert found.column("id").to_pylist() == list(range(end, last))


def _latest(connection: FlussConnection) -> int:
    admin = connection.get_admin().result()
    return admin.list_offsets(PATH, [0], OffsetSpec.latest()).result()[0]
