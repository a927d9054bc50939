"""Addresses and credentials that are wrong: a typed error that says what to do, soon."""

from __future__ import annotations

from typing import Any

import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.testing import LocalCluster
from fluss_client.testing.launching import pick
from tests.contract.loopback import closes, is_silent, says_nonsense, serving, speaks_http
from tests.waiting import within


def _connect(address: str, **settings: Any) -> fluss.FlussConnection:
    keys = {key.replace("_", "-"): value for key, value in settings.items()}
    config = fluss.Config({"bootstrap.servers": address, "connect-timeout": "2s"} | keys)
    return fluss.FlussConnection.create(config).result()


def _fails(address: str, **settings: Any) -> fluss.FlussError:
    with within(15, "the error"), pytest.raises(fluss.FlussError) as raised:
        _connect(address, **settings)
    return raised.value


def test_nobody_listens() -> None:
    port = pick(set())
    error = _fails(f"127.0.0.1:{port}")
    assert isinstance(error, errors.ConnectError)
    assert f"127.0.0.1:{port}" in error.message
    assert "refused" in error.message
    assert "bootstrap.servers" in error.message


def test_nobody_listens_at_any_address() -> None:
    taken: set[int] = set()
    ports = [pick(taken) for _ in range(2)]
    error = _fails(",".join(f"127.0.0.1:{port}" for port in ports))
    assert all(str(port) in error.message for port in ports)


def test_a_name_that_nobody_has() -> None:
    error = _fails("no-such-host.invalid:9123")
    assert isinstance(error, errors.ConnectError)
    assert "no-such-host.invalid" in error.message


@pytest.mark.parametrize("host", ["two..dots", "x" * 64 + ".invalid"])
def test_a_name_that_nobody_can_have(host: str) -> None:
    error = _fails(f"{host}:9123")
    assert isinstance(error, errors.ConnectError)
    assert "this is not a host name" in error.message


def test_a_listener_that_takes_no_one() -> None:
    """A full backlog is how an address without a way to it looks from here."""
    import socket

    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for other in (first, second):
            other.setblocking(False)
            other.connect_ex(listener.getsockname())
        error = _fails("{}:{}".format(*listener.getsockname()), connect_timeout="500ms")
    assert isinstance(error, errors.ConnectError)
    assert "within 0.5 s" in error.message


@pytest.mark.parametrize(
    ("handler", "hint"),
    [(closes, "reached"), (is_silent, "within"), (speaks_http, "Fluss"), (says_nonsense, "")],
)
def test_an_address_that_is_not_fluss(handler: Any, hint: str) -> None:
    with serving(handler) as address:
        error = _fails(address, connect_timeout="500ms")
    assert hint in error.message
    assert address in error.message


@pytest.mark.supports("Several bootstrap addresses")
def test_one_good_address_is_enough(plain_cluster: LocalCluster) -> None:
    with serving(speaks_http) as wrong:
        good = plain_cluster.info.bootstrap_servers.split(",")[-1]
        with _connect(f"127.0.0.1:{pick(set())},{wrong},{good}") as connection:
            nodes = connection.get_admin().result().get_server_nodes().result()
    assert len(nodes) == 4, "every server is known from one address"


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "localhost",
        "localhost:",
        "localhost:x",
        ":9123",
        "localhost:99999",
        "a:1,,b:2",
        "a:1b:2",
    ],
)
def test_what_is_no_address(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUSS_BOOTSTRAP_SERVERS", raising=False)
    error = _fails(bad)
    assert isinstance(error, errors.ConfigError)
    assert "host:port" in error.message
    assert "embedded:PATH" in error.message


def test_the_environment_gives_the_address(
    plain_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUSS_BOOTSTRAP_SERVERS", plain_cluster.info.bootstrap_servers)
    with fluss.FlussConnection.create(fluss.Config()).result() as connection:
        assert connection.get_admin().result().list_databases().result()


def _sasl(info: Any, **changes: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl",
        "security.sasl.username": "admin",
        "security.sasl.password": info.users["admin"],
    } | {f"security.sasl.{key}": value for key, value in changes.items()}


@pytest.mark.supports("SASL/PLAIN")
def test_wrong_credentials(plain_cluster: LocalCluster) -> None:
    info = plain_cluster.info
    assert info.sasl_bootstrap_servers is not None
    for changes in ({"password": "guess-me-not"}, {"username": "nobody"}):
        error = _fails(info.sasl_bootstrap_servers, **_sasl(info, **changes))
        assert isinstance(error, errors.AuthenticationError)
        assert error.error_code == fluss.ErrorCode.AUTHENTICATE_EXCEPTION
        assert "security.sasl.password" in error.message
        assert "guess-me-not" not in str(error) + repr(error)
        assert info.users["admin"] not in str(error) + repr(error)


def test_no_credentials_where_some_are_needed(plain_cluster: LocalCluster) -> None:
    error = _fails(str(plain_cluster.info.sasl_bootstrap_servers))
    assert isinstance(error, errors.AuthenticationError)
    assert "security.protocol=sasl" in error.message


def test_credentials_where_none_are_taken(plain_cluster: LocalCluster) -> None:
    info = plain_cluster.info
    error = _fails(info.bootstrap_servers, **_sasl(info))
    assert isinstance(error, errors.AuthenticationError)
    assert "SASL listener" in error.message


def test_half_of_the_credentials() -> None:
    for key in ("username", "password"):
        settings = {"security.protocol": "sasl", f"security.sasl.{key}": "x"}
        error = _fails("127.0.0.1:1", **settings)
        assert isinstance(error, errors.ConfigError)
        missing = "password" if key == "username" else "username"
        assert f"security.sasl.{missing}" in error.message
