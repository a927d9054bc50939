"""What a directory must be, and what may be asked of a cluster, before anything starts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fluss_client.testing import LocalCluster, LocalClusterError
from fluss_client.testing.processes import spawn
from fluss_client.testing.state import STATE_FILE


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for call in (LocalCluster.up, LocalCluster.down, lambda c: c.up(fresh=True)):
        with pytest.raises(LocalClusterError, match="is not a cluster's directory"):
            call(LocalCluster(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(LocalClusterError, match="is not a directory"):
            LocalCluster(path).up()


def test_a_place_that_cannot_be_written_is_named() -> None:
    # The kernel's own folder takes no new files, not even from root.
    with pytest.raises(LocalClusterError, match="/proc/cluster cannot be made or read"):
        LocalCluster("/proc/cluster").up()


def test_a_directory_without_permission_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with nobody(), pytest.raises(LocalClusterError, match=r"locked.* cannot be .* --dir"):
        LocalCluster(folder / "cluster").up()
    assert list(folder.iterdir()) == []


@contextmanager
def nobody() -> Iterator[None]:
    """Root may write everywhere, so give that up for a while."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tablet_servers": 0}, "choose 1 to 32"),
        ({"tablet_heap": "64m"}, "at least 128m"),
        ({"tablet_heap": "1 GB"}, "such as 512m or 2g"),
        ({"lake": "paimon"}, "'paimon' is unknown: choose iceberg"),
        ({"port": 70000}, "70000 is not a port"),
        ({"config": {"bind.listeners": "x"}}, "is set by the launcher"),
        ({"config": {"": "x"}}, "is not a configuration key"),
        ({"config": {"a key": "x"}}, "is not a configuration key"),
        ({"config": {"key": "one\ntwo: 2"}}, "must be one line"),
        ({"config": {"key": ""}}, "must be one line"),
    ],
)
def test_options_that_cannot_work_are_refused(
    options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(LocalClusterError, match=sentence):
        LocalCluster(tmp_path / "cluster", **options)
    assert not (tmp_path / "cluster").exists()


def test_a_damaged_state_file_is_named_and_fresh_is_advised(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text("{")
    with pytest.raises(LocalClusterError, match="is damaged: start over with --fresh"):
        LocalCluster(tmp_path).up()


@pytest.mark.parametrize(
    "call",
    [
        lambda cluster: cluster.kill("tablet-1"),
        lambda cluster: cluster.start("tablet-1"),
        lambda cluster: cluster.log_path("tablet-1"),
        lambda cluster: cluster.info,
    ],
)
def test_a_cluster_that_never_was_is_said_so(
    call: Callable[[LocalCluster], object], tmp_path: Path
) -> None:
    with pytest.raises(LocalClusterError, match="no cluster was ever started"):
        call(LocalCluster(tmp_path))


def test_a_stopped_cluster_has_a_status_and_can_be_stopped_again(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "none")
    cluster.down()
    status = cluster.status()
    assert (status.state, status.answering, status.servers) == ("stopped", False, {})


def test_a_stale_pid_is_told_from_a_live_process(tmp_path: Path) -> None:
    """The file names a pid that now belongs to somebody else, who must not be stopped."""
    stranger = spawn(["/bin/sh", "-c", "exec sleep 600"], tmp_path, tmp_path / "out")
    folder = tmp_path / "cluster"
    folder.mkdir()
    server = {"ports": {"CLIENT": 1}, "process": {"pid": stranger.pid, "started": "long ago"}}
    settings = {"tablet_servers": 1, "sasl": False, "lake": None, "port": None, "config": {}}
    (folder / STATE_FILE).write_text(
        json.dumps({"settings": settings, "users": {}, "servers": {"zookeeper": server}})
    )
    cluster = LocalCluster(folder)
    status = cluster.status()
    assert (status.state, status.servers["zookeeper"].state) == ("stopped", "crashed")
    with pytest.raises(LocalClusterError, match="zookeeper does not run"):
        cluster.kill("zookeeper")
    cluster.down()
    assert stranger.is_alive()
    assert cluster.status().servers["zookeeper"].state == "stopped"
    stranger.kill("stranger")


def test_the_default_directory_is_in_the_user_s_state_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert LocalCluster().directory == tmp_path / "fluss-orchestrate" / "cluster"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert LocalCluster().directory == tmp_path / ".local/state/fluss-orchestrate/cluster"
