"""The cluster backend: all calls in one class, and its capabilities."""

from __future__ import annotations

from dataclasses import replace

from fluss_client.backend.cluster.kv_snapshots import StateCalls
from fluss_client.backend.cluster.lake import LakeCalls
from fluss_client.backend.cluster.lookups import LookupCalls
from fluss_client.backend.cluster.writes import WriteCalls
from fluss_client.backend.contract import Capabilities
from fluss_client.config import Config
from fluss_client.net.pool import parse_addresses


class ClusterBackend(WriteCalls, StateCalls, LookupCalls, LakeCalls):
    """The backend contract over the wire: a client of one cluster on one event loop."""

    _CAPABILITIES = Capabilities(
        name="cluster",
        versioned_merge_engine=True,
        aggregation_merge_engine=True,
        auto_increment=True,
        remote_log=True,
        kv_snapshots=True,
        acls=True,
        cluster_configs=True,
        replication=True,
        scan_kv=False,
    )

    @property
    def capabilities(self) -> Capabilities:
        """Say what the servers support that this client has connected to so far."""
        return replace(
            self._CAPABILITIES,
            rescaling=self.pool.takes_bucket_counts,
            scan_kv=self.pool.serves_scan_kv,
        )

    @classmethod
    async def open(cls, config: Config) -> ClusterBackend:
        """Connect to the first bootstrap address that answers and ask for the servers."""
        backend = cls(parse_addresses(config.resolved_bootstrap()), config)
        try:
            await backend.metadata.refresh_servers()
        except BaseException:
            await backend.close()
            raise
        return backend
