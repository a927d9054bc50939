"""The two clusters that tests share are what their fixtures promise."""

from __future__ import annotations

from fluss_client.testing import LocalCluster
from fluss_client.testing.probe import ask_metadata
from tests.needs import unavailable  # noqa: F401


def _port(addresses: str) -> int:
    return int(addresses.split(",")[0].rpartition(":")[2])


def test_the_plain_cluster_has_three_tablet_servers_and_sasl(plain_cluster: LocalCluster) -> None:
    metadata = ask_metadata(_port(plain_cluster.info.bootstrap_servers), timeout_s=10)
    assert {node.node_id for node in metadata.tablet_servers} == {1, 2, 3}
    assert plain_cluster.info.users.keys() == {"admin", "alice"}


def test_lake(lake_cluster: LocalCluster) -> None:
    assert lake_cluster.status().answering
