"""The two clusters that tests share are what their fixtures promise."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import load_catalog

from fluss_client.testing import LocalCluster
from fluss_client.testing.readiness import ask_metadata
from tests.waiting import scaled


def ports(addresses: str) -> list[int]:
    return [int(address.rpartition(":")[2]) for address in addresses.split(",")]


def test_the_plain_cluster_has_three_tablet_servers_and_sasl(plain_cluster: LocalCluster) -> None:
    info = plain_cluster.info
    for port in ports(info.bootstrap_servers):
        metadata = ask_metadata(port, timeout_s=scaled(10))
        assert {node.node_id for node in metadata.tablet_servers} == {1, 2, 3}
        assert metadata.coordinator_server.port == ports(info.bootstrap_servers)[0]
    assert len(ports(info.sasl_bootstrap_servers or "")) == 4
    assert info.users.keys() == {"admin", "alice"}


def test_pyiceberg_opens_the_lake_cluster_s_catalog(lake_cluster: LocalCluster) -> None:
    assert lake_cluster.status().answering
    assert lake_cluster.info.lake is not None
    catalog = load_catalog(**lake_cluster.info.lake)
    try:
        assert isinstance(catalog.list_namespaces(), list)
    finally:
        catalog.close()


def test_their_tests_are_marked(
    request: pytest.FixtureRequest, plain_cluster: LocalCluster
) -> None:
    assert request.node.get_closest_marker("cluster") is not None
