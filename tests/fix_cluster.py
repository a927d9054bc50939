"""Real clusters for tests: three that all tests share, and as many private ones as a test makes.

`plain_cluster` (three tablet servers, SASL beside plain text), `lake_cluster` (Iceberg) and
`storage_cluster` (S3 and a REST catalog) start when the first selected test that names them runs.
They are down again at the end of the run, or stay up for the next one with KEEP_CLUSTER=1. Tests
share them: name your tables uniquely, and leave every server running. Workers of a parallel run
(`-n`) share the controller's clusters: the first that needs one starts it, and the controller takes
them down.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss_client.testing import LocalCluster, LocalClusterError, find_java
from fluss_client.testing.artifacts import ensure_jars
from fluss_client.testing.errors import ArtifactError, JavaNotFoundError
from fluss_client.testing.jars import SERVER_JARS
from fluss_client.testing.processes import ProcessMark, process_start
from fluss_client.testing.user_dirs import file_lock, state_dir
from tests.needs import unavailable
from tests.waiting import scaled

START_DEADLINE_S = 300.0
TURN_S = 300.0
REPLICATES_SOON = {"log.replica.fetch.wait-max-time": "50ms"}
"""By default a row waits half a second for its replicas, and checkpoints have three of them."""
SHARED: dict[str, dict[str, Any]] = {
    "plain_cluster": {
        "tablet_servers": 3,
        "sasl": True,
        "config": {"default.replication.factor": "1", **REPLICATES_SOON},
    },
    "lake_cluster": {
        "tablet_servers": 1,
        "lake": "iceberg",
        "config": {"kv.snapshot.interval": "1s"},
    },
    "storage_cluster": {
        "tablet_servers": 1,
        "tablet_heap": "512m",
        "remote": "s3",
        "lake": "iceberg-rest",
        "config": {
            "kv.snapshot.interval": "1s",
            "remote.log.task-interval-duration": "1s",
            "log.segment.file-size": "1mb",
        },
    },
}


class SharedClusters:
    """The clusters of one test run, each started at most once; what went wrong is remembered."""

    def __init__(self, root: Path, folder: Path | None = None) -> None:
        self._keep = os.environ.get("KEEP_CLUSTER", "") not in ("", "0")
        self._is_worker = folder is not None
        self._root = root
        self._folder = folder
        self._outcomes: dict[str, LocalCluster | LocalClusterError] = {}

    def start(self, name: str) -> LocalCluster | LocalClusterError:
        """The cluster, up; or why it is not."""
        if name not in self._outcomes:
            folder = self.folder / name
            cluster = LocalCluster(folder, **SHARED[name])
            try:
                with file_lock(
                    folder.with_suffix(".lock"), scaled(START_DEADLINE_S), f"starting {name}"
                ):
                    if self._keep:
                        _up_again(cluster)
                    else:
                        cluster.up()
                self._outcomes[name] = cluster
            except LocalClusterError as error:
                self._outcomes[name] = error
        return self._outcomes[name]

    def finish(self) -> None:
        """Take down what this run started and delete its files, unless told to keep them."""
        if self._keep or self._is_worker or self._folder is None:
            return
        for name in SHARED:
            if (self._folder / name).is_dir():
                discard(LocalCluster(self._folder / name))
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Where the clusters of this run live."""
        if self._folder is None:
            if self._keep:
                # One place per checkout: two of them may want different servers.
                key = hashlib.sha256(str(self._root).encode()).hexdigest()[:8]
                self._folder = state_dir() / "tests" / key
            else:
                self._folder = _run_folder()
        return self._folder


def discard(cluster: LocalCluster) -> None:
    """End a cluster that nobody will start again: its servers need not put anything in order."""
    with contextlib.suppress(LocalClusterError):
        for name in cluster.info.pids:
            with contextlib.suppress(LocalClusterError):
                cluster.kill(name)
    cluster.down()


def _up_again(cluster: LocalCluster) -> None:
    try:
        cluster.up()
    except (JavaNotFoundError, ArtifactError):
        raise
    except LocalClusterError:
        # Kept by a run that wanted something else of it, or broken: a new one serves as well.
        cluster.down()
        cluster.up(fresh=True)


def _run_folder() -> Path:
    """A folder named after this process; those of runs that died are cleared away first."""
    base = Path(tempfile.gettempdir()) / f"fluss-orchestrate-tests-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    for old in base.iterdir():
        pid, _, started = old.name.partition("@")
        if pid.isdigit() and not ProcessMark(int(pid), started.replace("_", "/")).is_alive():
            for cluster in filter(Path.is_dir, old.iterdir()):
                discard(LocalCluster(cluster))
            shutil.rmtree(old, ignore_errors=True)
    mark = (process_start(os.getpid()) or "").replace("/", "_")
    return base / f"{os.getpid()}@{mark}"


_CLUSTERS = pytest.StashKey[SharedClusters]()


def clusters_folder(config: pytest.Config) -> Path:
    """Where the shared clusters of this run live."""
    return config.stash[_CLUSTERS].folder


@pytest.fixture
def only_tierer(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nobody else of this run asks the shared lake's coordinator for tables to tier.

    It hands out any table that is due to whoever asks, also to a worker of another test.
    """
    with file_lock(clusters_folder(request.config) / "tierer.lock", scaled(TURN_S), "tiering"):
        yield


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {}).get("cluster_folder")
    config.stash[_CLUSTERS] = SharedClusters(config.rootpath, Path(given) if given else None)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The controller tells a worker of a parallel run where the clusters are."""
    node.workerinput["cluster_folder"] = str(node.config.stash[_CLUSTERS].folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_CLUSTERS].finish()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SHARED.keys() & _fixtures_of(item):
            item.add_marker("cluster")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    # Before the per-test timeout begins: the first start may have to fetch the server.
    for name in SHARED.keys() & _fixtures_of(item):
        item.config.stash[_CLUSTERS].start(name)
    return (yield)


def _fixtures_of(item: pytest.Item) -> set[str]:
    return set(getattr(item, "fixturenames", ()))


def _shared(request: pytest.FixtureRequest, name: str) -> LocalCluster:
    outcome = request.config.stash[_CLUSTERS].start(name)
    if isinstance(outcome, LocalCluster):
        return outcome
    if isinstance(outcome, (JavaNotFoundError, ArtifactError)):
        unavailable(outcome.message)
    raise outcome


@pytest.fixture(scope="session")
def plain_cluster(request: pytest.FixtureRequest) -> LocalCluster:
    """Three tablet servers; tables have one replica unless they ask for more. SASL is served
    too: `info.sasl_bootstrap_servers`, `info.users`."""
    return _shared(request, "plain_cluster")


@pytest.fixture(scope="session")
def lake_cluster(request: pytest.FixtureRequest) -> LocalCluster:
    """One tablet server and an Iceberg lake: `info.lake` opens its catalog."""
    return _shared(request, "lake_cluster")


@pytest.fixture(scope="session")
def storage_cluster(request: pytest.FixtureRequest) -> LocalCluster:
    """Remote storage on S3 (`info.storage`, `info.bucket`) and a lake behind a REST catalog."""
    return _shared(request, "storage_cluster")


@pytest.fixture(scope="session")
def server_jars() -> None:
    """The server can be started here; a test that makes clusters itself asks for this."""
    try:
        ensure_jars(SERVER_JARS, find_java())
    except (JavaNotFoundError, ArtifactError) as error:
        unavailable(error.message)


@pytest.fixture
def make_cluster(server_jars: None, tmp_path: Path) -> Iterator[Callable[..., LocalCluster]]:
    """Make a `LocalCluster` of one's own, not yet up; it ends with the test."""
    made: list[LocalCluster] = []

    def make(name: str = "cluster", **options: Any) -> LocalCluster:
        made.append(LocalCluster(tmp_path / name, **options))
        return made[-1]

    yield make
    for cluster in made:
        discard(cluster)
