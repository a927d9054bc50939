"""Checks of tables that take rows of expired partitions, on a scripted 1.0 server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fluss_client.engine import HISTORICAL_PARTITION
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from fluss_orchestrate.core.errors import LateRowsError
from tests.airflow_provider.conftest import add_connection
from tests.contract.tables import done
from tests.fluss1.server import ScriptedServer, scripted
from tests.fluss1.test_bucket_counts import KEYED, LOG, PATH, opened, write
from tests.fluss1.test_system_partitions import OLD, TAKES_LATE_ROWS, write_late


@pytest.fixture(params=[KEYED, LOG], ids=["keys", "log"])
def server(request: pytest.FixtureRequest) -> Iterator[ScriptedServer]:
    """A server with 60 rows of a partition (30 keys), and 10 late rows."""
    options: Any = {"bucket_keys": ["id"], "properties": TAKES_LATE_ROWS}
    with scripted(request.param, {"old": 2, HISTORICAL_PARTITION: 2}, **options) as made:
        with opened(made) as connection:
            write(done(connection.get_table(PATH)), OLD)
            write_late(connection, made)
        yield made


@pytest.mark.parametrize("where", [None, "id >= 0"], ids=["counted", "read"])
def test_row_counts_have_late_rows_or_say_that_they_cannot(
    airflow_home: Any, server: ScriptedServer, where: str | None
) -> None:
    from fluss_orchestrate.airflow import FlussRowCountCheckOperator

    conn_id = add_connection(f"late_{server.port}", host=server.bootstrap)

    def count(policy: str) -> int:
        check = FlussRowCountCheckOperator(
            task_id="rows",
            fluss_conn_id=conn_id,
            table=str(PATH),
            min_rows=0,
            where=where,
            on_late_rows=policy,
        )
        return int(check.work({})["rows"])

    if server.schema.primary_keys:
        with pytest.raises(LateRowsError, match="cannot be read from Fluss"):
            count("read")
        assert count("note") == 30
    else:
        assert count("read") == 70
        assert count("note") == 60
    with pytest.raises(LateRowsError, match="on_late_rows='fail'"):
        count("fail")


def test_late_rows_are_fresh(airflow_home: Any, server: ScriptedServer) -> None:
    from fluss_orchestrate.airflow import FlussFreshnessCheckOperator

    conn_id = add_connection(f"fresh_{server.port}", host=server.bootstrap)
    check = FlussFreshnessCheckOperator(
        task_id="fresh", fluss_conn_id=conn_id, table=str(PATH), max_age=3600
    )

    def first(message: Any) -> pb.ListOffsetsResponse | None:
        """Answer every time with the first offset: all rows are young."""
        if message.HasField("startTimestamp"):
            return pb.ListOffsetsResponse(
                buckets_resp=[
                    pb.PbListOffsetsRespForBucket(bucket_id=b, offset=0) for b in message.bucket_id
                ]
            )
        return None

    server.on(apis.LIST_OFFSETS, first)
    assert check.work({})["fresh_offsets"] == sum(server.ends.values())
