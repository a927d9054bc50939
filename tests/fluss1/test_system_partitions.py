"""The list of system partitions, against a scripted 1.0 server and one of 0.9."""

from __future__ import annotations

import pytest

from fluss_client.engine import backend_of, run_blocking
from fluss_client.errors import UnsupportedByServerError
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from tests.fluss1.server import scripted
from tests.fluss1.test_bucket_counts import LOG, PATH, opened


def listed(request: pb.ListPartitionInfosRequest) -> pb.ListPartitionInfosResponse | None:
    """What a 1.0 server answers: system partitions only to those who ask for them."""
    if not request.include_system_partitions:
        return None
    answer = pb.ListPartitionInfosResponse(system_partitions_included=True)
    for number, name in ((100, "old"), (101, "__historical__")):
        info = answer.partitions_info.add(partition_id=number, bucket_count=2)
        info.partition_spec.partition_key_values.add(key="day", value=name)
    return answer


def test_system_partitions_are_listed_by_themselves() -> None:
    with scripted(LOG, {"old": 2}) as server, opened(server) as connection:
        server.on(apis.LIST_PARTITION_INFOS, listed)
        found = run_blocking(backend_of(connection).system_partitions(PATH))
        assert [(p.partition_id, p.partition_name) for p in found] == [(101, "__historical__")]
        assert server.sent(apis.LIST_PARTITION_INFOS)[-1].include_system_partitions


def test_an_older_server_does_not_list_them() -> None:
    with (
        scripted(LOG, {"old": 2}, old=True) as server,
        opened(server) as connection,
        pytest.raises(UnsupportedByServerError, match=r"needs Fluss 1\.0"),
    ):
        run_blocking(backend_of(connection).system_partitions(PATH))
