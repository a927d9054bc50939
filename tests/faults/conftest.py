"""What the fault tests share: the ground that they stand on, with whole lines to it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import fluss_client as fluss
from fluss_client.testing import LocalCluster
from tests.contract.tables import done
from tests.faults.ground import Ground


@pytest.fixture(scope="session")
def ground(plain_cluster: LocalCluster) -> Iterator[Ground]:
    """Tables with known content on the shared cluster; gone at the end of the run."""
    config = fluss.Config({"bootstrap.servers": plain_cluster.info.bootstrap_servers})
    with done(fluss.FlussConnection.create(config)) as direct:
        made = Ground(direct, f"faults_{os.getpid()}")
        yield made
        made.drop()
