"""Writers while servers die and come back: every row once, in order."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client.testing import LocalCluster
from tests.contract.tables import Tables, done
from tests.fix_cluster import REPLICATES_SOON

ROUNDS = 60
ROWS = 500


@pytest.mark.timeout(300)
def test_a_writer_outlives_the_death_of_any_server(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(tablet_servers=3, config=REPLICATES_SOON)
    info = cluster.up()
    config = fluss.Config({"bootstrap.servers": info.bootstrap_servers})
    with done(fluss.FlussConnection.create(config)) as connection:
        admin = done(connection.get_admin())
        done(admin.create_database("failover"))
        tables = Tables(connection, admin, "failover")
        replicated = {"table.replication.factor": "3"}
        log = tables.create(
            {"id": pa.int64()}, buckets=4, bucket_keys=["id"], properties=replicated
        )
        keyed = tables.create(
            {"id": pa.int64(), "round": pa.int32()}, ["id"], buckets=4, properties=replicated
        )
        append = log.new_append().create_writer()
        upsert = keyed.new_upsert().create_writer()
        for at in range(ROUNDS):
            if at in (10, 40):
                cluster.kill(f"tablet-{1 + at // 40}")
            if at == 30:
                cluster.start("tablet-1")
            ids = range(at * ROWS, (at + 1) * ROWS)
            handle = append.write_arrow_batch(pa.record_batch({"id": list(ids)}))
            upsert.write_arrow(pa.table({"id": list(range(ROWS)), "round": [at] * ROWS}))
            done(handle.wait())
        done(append.flush())
        done(upsert.flush())
        assert append.metrics()["retries"] > 0
        found = sorted(tables.log(log)["id"].to_pylist())
        assert found == list(range(ROUNDS * ROWS))
        lookuper = keyed.new_lookup().create_lookuper()
        rows = done(lookuper.lookup_many([{"id": at} for at in range(ROWS)]))
        assert [row["round"] for row in rows] == [ROUNDS - 1] * ROWS
