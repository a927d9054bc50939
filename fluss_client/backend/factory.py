"""Chooses the backend by the address. A new backend is one entry of `_BY_PREFIX`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fluss_client.backend.contract import Backend
from fluss_client.config import EMBEDDED_SCHEME, Config


async def _open_cluster(config: Config) -> Backend:
    from fluss_client.backend.cluster.backend import ClusterBackend

    return await ClusterBackend.open(config)


async def _open_embedded(config: Config) -> Backend:
    from fluss_client.backend.embedded.backend import EmbeddedBackend

    return await EmbeddedBackend.open(config)


_BY_PREFIX: dict[str, Callable[[Config], Awaitable[Backend]]] = {
    EMBEDDED_SCHEME: _open_embedded,
    "": _open_cluster,
}


async def open_backend(config: Config) -> Backend:
    """Open the backend that `bootstrap.servers` names, on the running loop."""
    config.check()
    address = config.resolved_bootstrap()
    prefix = next(p for p in _BY_PREFIX if address.startswith(p))
    return await _BY_PREFIX[prefix](config)
