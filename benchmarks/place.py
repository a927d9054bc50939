"""Where a run happens: its size, its folder, and a cluster when a part asks for one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from fluss_client import Config, FlussConnection
from fluss_client.testing import LocalCluster

WIDE_TABLES = {"max.partition.num": "20000", "max.bucket.num": "20000"}
CONNECT_S = 60.0
DROP_S = 300.0


class Scale(StrEnum):
    """How much is done: to see that it runs, in minutes, or for figures to be quoted."""

    TINY = "tiny"
    QUICK = "quick"
    FULL = "full"


class Place:
    """One run's folder and cluster; `with` it, everything is gone afterwards."""

    def __init__(self, scale: Scale, bootstrap: str = "", keys: int = 0) -> None:
        self.scale = scale
        # How many keys the tables of `mirrors` and `lake_keys` have; 0 for what the scale says.
        self.keys = keys
        self._given = bootstrap
        self._open = ExitStack()
        self._folders = 0

    def __enter__(self) -> Place:
        name = self._open.enter_context(tempfile.TemporaryDirectory(prefix="fluss-bench-"))
        self._folder = Path(name)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def folder(self) -> Path:
        """An empty folder."""
        self._folders += 1
        made = self._folder / str(self._folders)
        made.mkdir()
        return made

    @cached_property
    def bootstrap(self) -> str:
        """The address of a real cluster; it starts when it is first asked for."""
        return self._given or self._start("cluster", None)

    @cached_property
    def lake_bootstrap(self) -> str:
        """The address of one with a lake, the same if one was given to the run."""
        return self._given or self._start("lake", "iceberg")

    @cached_property
    def snapshots_bootstrap(self) -> str:
        """The address of one that makes KV snapshots often, the same if one was given."""
        return self._given or self._start("snapshots", None, {"kv.snapshot.interval": "2s"})

    @cached_property
    def storage_bootstrap(self) -> str:
        """The address of one whose remote storage is on S3, the same if one was given.

        The keys of the store are put into the environment; for a given cluster they must be there.
        """
        if self._given:
            return self._given
        size = "1mb" if self.scale is Scale.TINY else "16mb"
        config = {"remote.log.task-interval-duration": "1s", "log.segment.file-size": size}
        folder = self._folder / "storage"
        cluster = self._open.enter_context(LocalCluster(folder, remote="s3", config=config))
        for key, value in (cluster.info.storage or {}).items():
            name = key.removeprefix("s3.").replace("-", "_").upper()
            os.environ[f"FLUSS_STORAGE__S3__{name}"] = value
        return str(cluster.info.bootstrap_servers)

    def _start(self, name: str, lake: str | None, config: Mapping[str, str] | None = None) -> str:
        cluster = LocalCluster(self._folder / name, lake=lake, config=WIDE_TABLES | (config or {}))
        return str(self._open.enter_context(cluster).info.bootstrap_servers)


@contextmanager
def connected(bootstrap: str, **more: object) -> Iterator[FlussConnection]:
    """A connection for the block; `more` are settings, spelled with underscores."""
    config = Config({"bootstrap.servers": bootstrap})
    for name, value in more.items():
        setattr(config, name, value)
    with FlussConnection.create(config).result(CONNECT_S) as connection:
        yield connection


@contextmanager
def own_database(connection: FlussConnection, part: str) -> Iterator[str]:
    """A database for the block, dropped after it with all its tables."""
    name = f"bench_{part}_{os.getpid()}"
    admin = connection.get_admin().result(CONNECT_S)
    admin.create_database(name).result(CONNECT_S)
    try:
        yield name
    finally:
        admin.drop_database(name, ignore_if_not_exists=True, cascade=True).result(DROP_S)
