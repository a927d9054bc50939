"""A cluster's life, told by the command and checked from outside: processes, ports, answers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fluss_client.testing import LocalCluster, LocalClusterError
from fluss_client.testing.errors import ServerStartError
from fluss_client.testing.launching import is_free
from fluss_client.testing.readiness import ask_metadata
from fluss_client.testing.state import STATE_FILE
from tests.foundation.command import run, start
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("server_jars")]
Make = Callable[..., LocalCluster]


def processes_in(folder: Path) -> list[int]:
    """The pids of every Java with this folder on its command line."""
    return [
        process.info["pid"]
        for process in psutil.process_iter(["pid", "cmdline"])
        if any(str(folder) in part for part in process.info["cmdline"] or ())
        and process.info["cmdline"][0].endswith("java")
    ]


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def ports_of(cluster: LocalCluster) -> list[int]:
    servers = cluster.status().servers.values()
    return [port for server in servers for port in server.ports.values()]


def first_port(addresses: str) -> int:
    return int(addresses.split(",")[0].rpartition(":")[2])


@pytest.mark.timeout(300)
def test_up_down_up(tmp_path: Path) -> None:
    """Every promise of up, status and down, in the order in which a person meets them."""
    folder = tmp_path / "a cluster"  # a space in the path must not matter
    up = ("cluster", "up", "--dir", str(folder), "--json")
    try:
        # Two at once: one starts it, the other waits and then says the same.
        commands = [start(*up, "--sasl", "--config", "default.bucket.number=2") for _ in range(2)]
        outputs = [command.communicate() for command in commands]
        assert outputs[0] == outputs[1]
        assert outputs[0][1] == ""
        info = json.loads(outputs[0][0])
        assert (
            info["pids"].keys() == info["logs"].keys() == {"zookeeper", "coordinator", "tablet-1"}
        )
        assert info["users"].keys() == {"admin", "alice"}
        assert info["lake"] is None
        assert sorted(processes_in(folder)) == sorted(info["pids"].values())
        _only_on_loopback(info["pids"].values())
        _keeps_secrets(folder, info["users"].values())

        again = run(*up)
        assert (again.returncode, again.stdout) == (0, outputs[0][0])

        status = run("cluster", "status", "--dir", str(folder), "--json")
        assert status.returncode == 0
        assert json.loads(status.stdout)["state"] == "running"

        other = run(*up, "--tablet-servers", "2")
        assert (other.returncode, other.stdout) == (1, "")
        assert "runs with other options: run down first" in other.stderr

        ports = ports_of(LocalCluster(folder))
        assert run("cluster", "down", "--dir", str(folder)).returncode == 0
        assert processes_in(folder) == []
        assert all(is_free(port) for port in ports)
        assert run("cluster", "status", "--dir", str(folder)).returncode == 3

        second = json.loads(run(*up).stdout)
        assert second.pop("pids") != info.pop("pids")
        assert second == info, "ports, users and options survive"
    finally:
        LocalCluster(folder).down()
    assert processes_in(folder) == []


def _only_on_loopback(pids: Any) -> None:
    for pid in pids:
        for connection in psutil.Process(pid).net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip.removeprefix("::ffff:") == "127.0.0.1"


def _keeps_secrets(folder: Path, passwords: Any) -> None:
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / STATE_FILE).stat().st_mode & 0o077 == 0
    for log in (folder / "logs").iterdir():
        assert not any(password in log.read_text() for password in passwords), log


@pytest.fixture(scope="module")
def one_server(
    server_jars: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """A small cluster that the tests of this module may break; each leaves it running."""
    with LocalCluster(tmp_path_factory.mktemp("one") / "cluster") as cluster:
        yield cluster


def test_one_server_is_killed_and_started_by_name(one_server: LocalCluster) -> None:
    before = one_server.info
    one_server.kill("tablet-1")
    status = one_server.status()
    assert (status.state, status.answering) == ("degraded", False)
    assert status.servers["tablet-1"].state == "stopped"
    assert not runs(before.pids["tablet-1"])
    with pytest.raises(LocalClusterError, match="tablet-1 does not run"):
        one_server.kill("tablet-1")
    with pytest.raises(LocalClusterError, match="one of zookeeper, coordinator, tablet-1"):
        one_server.kill("tablet-7")

    after = one_server.start("tablet-1")
    assert after.bootstrap_servers == before.bootstrap_servers
    assert after.pids["tablet-1"] != before.pids["tablet-1"]
    assert after.pids["coordinator"] == before.pids["coordinator"]
    assert one_server.start("tablet-1") == after, "it runs: nothing to do"
    assert one_server.status().answering


def test_what_a_killed_server_had_unpacked_goes_with_its_next_start(
    one_server: LocalCluster,
) -> None:
    scratch = one_server.directory / "tmp" / "tablet-1"
    (unpacked,) = scratch.glob("librocksdb*")
    one_server.kill("tablet-1")
    assert unpacked.exists(), "it could not clean up"
    one_server.start("tablet-1")
    (again,) = scratch.glob("librocksdb*")
    assert again != unpacked


def test_a_crash_shows_and_up_mends_it(one_server: LocalCluster) -> None:
    info = one_server.info
    os.kill(info.pids["coordinator"], signal.SIGKILL)
    wait_until("the coordinator's end", lambda: not runs(info.pids["coordinator"]))
    assert one_server.status().servers["coordinator"].state == "crashed"
    mended = one_server.up()
    assert mended.pids["tablet-1"] == info.pids["tablet-1"]
    assert one_server.status().answering


def test_logs_are_printed(one_server: LocalCluster) -> None:
    answer = run("cluster", "logs", "coordinator", "-n", "3", "--dir", str(one_server.directory))
    assert answer.returncode == 0
    assert len(answer.stdout.splitlines()) == 3


def test_a_port_in_use_is_named(make_cluster: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = make_cluster(port=port)
        with pytest.raises(LocalClusterError, match=f"port {port}, which is for coordinator, is"):
            cluster.up()
    assert processes_in(cluster.directory) == []


def test_a_failed_start_shows_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    bad = "default.replication.factor=many"
    answer = run("cluster", "up", "--dir", str(folder), "--config", bad, "--json")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "Could not parse value 'many'" in answer.stderr, "the server's own last words"
    assert re.match(r"error: (coordinator|tablet-1) ended while", answer.stderr.splitlines()[-1])
    assert "Traceback" not in answer.stderr
    assert processes_in(folder) == []
    assert LocalCluster(folder).status().state == "stopped"


def test_a_start_that_is_not_ready_in_time_is_taken_down(
    make_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluss_client.testing.readiness.START_DEADLINE_S", 0.5)
    cluster = make_cluster()
    with pytest.raises(ServerStartError, match="was not ready after") as caught:
        cluster.up()
    assert caught.value.server
    assert processes_in(cluster.directory) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_start_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    command = start("cluster", "up", "--dir", str(folder))
    wait_until(
        "the first server",
        lambda: command.poll() is not None or processes_in(folder / "conf"),
        pause_s=0.02,
    )
    command.send_signal(number)
    _, errors = command.communicate()
    assert command.returncode == 128 + number
    assert "Traceback" not in errors
    assert processes_in(folder) == []


def test_fresh_starts_over(one_server: LocalCluster) -> None:
    before = one_server.info
    (one_server.directory / "left-over").write_text("")
    answer = run("cluster", "up", "--dir", str(one_server.directory), "--fresh", "--json")
    assert answer.returncode == 0
    assert not (one_server.directory / "left-over").exists()
    assert not any(runs(pid) for pid in before.pids.values())
    metadata = ask_metadata(first_port(json.loads(answer.stdout)["bootstrap_servers"]), 5)
    assert len(metadata.tablet_servers) == 1


def test_fewer_tablet_servers_than_hold_data_are_refused(plain_cluster: LocalCluster) -> None:
    fewer = LocalCluster(plain_cluster.directory, tablet_servers=2)
    with pytest.raises(LocalClusterError, match=r"other options|with data on them"):
        fewer.up()
