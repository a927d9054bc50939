"""The cluster backend: all calls in one class, and its capabilities."""

from __future__ import annotations

from dataclasses import replace

from fluss_client.backend.cluster.kv_snapshots import StateCalls
from fluss_client.backend.cluster.lake import LakeCalls
from fluss_client.backend.cluster.lookups import LookupCalls
from fluss_client.backend.cluster.writes import WriteCalls
from fluss_client.backend.contract import Capabilities
from fluss_client.config import Config
from fluss_client.errors import FlussError, LeaderNotAvailableError, NetworkError
from fluss_client.net.pool import parse_addresses
from fluss_client.net.retry import retrying

BROKEN_MAX = 1
"""A connect survives so many connections that break."""


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
        """Connect to the first bootstrap address that answers and ask for the servers.

        A coordinator that has just started is asked again, within the request timeout. If a
        connection breaks, the addresses are tried once more: a server may have ended. A cluster
        that cannot be reached is an error at once: the address may be wrong.
        """
        backend = cls(parse_addresses(config.resolved_bootstrap()), config)
        broken = 0

        def is_retriable(error: FlussError) -> bool:
            nonlocal broken
            broken += isinstance(error, NetworkError)
            return isinstance(error, LeaderNotAvailableError) or (
                isinstance(error, NetworkError) and broken <= BROKEN_MAX
            )

        try:
            await retrying(
                backend.metadata.refresh_servers, backend._deadline(), retriable=is_retriable
            )
        except BaseException:
            await backend.close()
            raise
        return backend
