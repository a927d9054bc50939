"""The embedded backend: all parts together."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from fluss_client.backend.contract import Capabilities
from fluss_client.backend.embedded.admin import AdminPart
from fluss_client.backend.embedded.cluster_part import ClusterPart
from fluss_client.backend.embedded.database import Database, Settings
from fluss_client.backend.embedded.lake_part import LakePart
from fluss_client.backend.embedded.reads import ReadPart
from fluss_client.backend.embedded.writing import WritePart
from fluss_client.config import EMBEDDED_SCHEME, Config
from fluss_client.errors import ConfigError


class EmbeddedBackend(AdminPart, WritePart, ReadPart, LakePart, ClusterPart):
    """One directory on a local disk as a backend."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.capabilities = Capabilities(
            name="embedded",
            versioned_merge_engine=False,
            aggregation_merge_engine=False,
            auto_increment=False,
            remote_log=False,
            kv_snapshots=False,
            acls=False,
            cluster_configs=False,
            replication=False,
            scan_kv=False,
            local_directory=str(database.directory),
        )

    @classmethod
    async def open(cls, config: Config) -> EmbeddedBackend:
        """Open the directory that `bootstrap.servers` names; it is made when it is missing."""
        settings = Settings(config.embedded_synchronous, config.embedded_lock_timeout_ms)
        database = Database(directory_of(config.resolved_bootstrap()), settings)
        await asyncio.to_thread(database.prepare)
        backend = cls(database)
        try:
            await backend.keep_all_auto_partitions()
        except BaseException:
            await backend.close()
            raise
        return backend


def directory_of(address: str) -> Path:
    """The directory in an address such as `embedded:~/data`, absolute from here on."""
    name = address.removeprefix(EMBEDDED_SCHEME).strip()
    if not name:
        raise ConfigError(f"'{address}' names no directory: write {EMBEDDED_SCHEME}PATH")
    return Path(os.path.abspath(os.path.expanduser(name)))
