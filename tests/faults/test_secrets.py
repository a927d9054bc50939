"""Passwords: asked for on every line, and in nothing that a person or a file gets to see."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import logging
import os
import pickle
import stat
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import aio, errors
from fluss_client.config import find_option
from fluss_client.testing import LocalCluster
from fluss_client.wire import apis
from fluss_client.wire.auth import Credentials, mechanism_for
from fluss_orchestrate import IncrementalScan, ParquetSink, SqlCheckpointStore, SqlSink
from fluss_orchestrate import run_increment as run_once
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.clusters import ClusterRef
from tests.contract.loopback import OneTable, closes, is_silent, serving
from tests.contract.tables import Tables, done
from tests.fix_proxy import FaultyLines
from tests.orchestrate.sinks.plans import IDENTITY

CANARY = "c4n4ry-p4ssw0rd-7f3a"
POSITION = TablePosition(IDENTITY, {})


@pytest.fixture
def heard() -> Iterator[io.StringIO]:
    """Everything that anybody logs, at any level."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.removeHandler(handler)
    root.setLevel(before)


def settings(cluster: LocalCluster, password: str | None, user: str = "admin") -> dict[str, str]:
    address = cluster.info.sasl_bootstrap_servers
    assert address is not None
    found = {"bootstrap.servers": address, "connect-timeout": "10s"}
    if password is not None:
        found |= {
            "security.protocol": "sasl",
            "security.sasl.username": user,
            "security.sasl.password": password,
        }
    return found


def told(error: BaseException) -> str:
    """All that a log or a report of this error can show.

    That is the texts of the error and of every error behind it, shown or not, and what the frames
    of their tracebacks hold, into containers, messages and plain objects. Only a `Config`, whose
    place it is to hold the password, is taken by its text form.
    """
    found: list[str] = []
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        found += [repr(one), str(one), repr(vars(one)), *getattr(one, "__notes__", ())]
        waiting += [one.__context__, one.__cause__, *getattr(one, "exceptions", ())]
        for frame, _ in traceback.walk_tb(one.__traceback__):
            # A test knows the password; its own frames are not what is looked at.
            if "/fluss_client/" in frame.f_code.co_filename:
                for name, value in frame.f_locals.items():
                    found += [f"{frame.f_code.co_qualname}.{name}: {t}" for t in _texts(value)]
    return "\n".join(found)


def _texts(value: Any, depth: int = 4) -> list[str]:
    """The text forms of a value and of what it holds."""
    if isinstance(value, bytes | bytearray | memoryview):
        return [bytes(value).decode("latin-1")]
    inside: list[Any] = []
    if depth and isinstance(value, Mapping):
        inside = [*value, *value.values()]
    elif depth and isinstance(value, list | tuple | set | frozenset | deque):
        inside = list(value)
    elif depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = [getattr(value, field.name) for field in dataclasses.fields(value)]
    return [repr(value), *(text for one in inside for text in _texts(one, depth - 1))]


def test_the_walk_finds_what_frames_hold() -> None:
    """Else the tests below would prove nothing."""
    credentials = Credentials("u", CANARY)
    for hidden in (credentials, [b"x" + CANARY.encode()], {"a": (memoryview(CANARY.encode()),)}):
        assert any(CANARY in text for text in _texts(hidden))
    assert not any(CANARY in text for text in _texts(fluss.Config(settings_of_canary())))


def test_a_wrong_password_is_refused_and_not_told(
    plain_cluster: LocalCluster, heard: io.StringIO
) -> None:
    for user in ("admin", "nobody"):
        config = fluss.Config(settings(plain_cluster, CANARY, user))
        with pytest.raises(errors.AuthenticationError) as raised:
            fluss.FlussConnection.create(config).result()
        assert user in str(raised.value)
        assert CANARY not in told(raised.value)
    assert "connected" not in heard.getvalue()
    assert CANARY not in heard.getvalue()


def test_without_credentials_nothing_is_answered(plain_cluster: LocalCluster) -> None:
    config = fluss.Config(settings(plain_cluster, None))
    with pytest.raises(errors.AuthenticationError, match=r"security\.protocol=sasl"):
        fluss.FlussConnection.create(config).result()
    for missing in ("username", "password"):
        values = settings(plain_cluster, CANARY)
        del values[f"security.sasl.{missing}"]
        with pytest.raises(errors.ConfigError, match=missing) as raised:
            fluss.FlussConnection.create(fluss.Config(values)).result()
        assert CANARY not in told(raised.value)


def test_no_fault_during_the_log_in_shows_the_password() -> None:
    """The server is silent, or hangs up, right after it was sent the password."""
    values = settings_of_canary() | {"connect-timeout": "400ms"}
    for how in (is_silent, closes):
        with serving(OneTable(cast("Any", apis.AUTHENTICATE), how)) as address:
            config = fluss.Config({**values, "bootstrap.servers": address})
            with pytest.raises(errors.FlussError) as raised:
                fluss.FlussConnection.create(config).result()
            assert CANARY not in told(raised.value)

            async def give_up(config: fluss.Config) -> None:
                config.connect_timeout_ms = 30_000
                await asyncio.wait_for(aio.FlussConnection.create(config), 0.4)

            with pytest.raises((TimeoutError, errors.FlussError)) as given_up:
                asyncio.run(give_up(config))
            assert CANARY not in told(given_up.value)


@pytest.mark.parametrize(
    "values",
    [
        {"security.sasl.password": CANARY, "no.such.key": 1},
        {"security.sasl.pasword": CANARY},
        {"security.sasl.password": CANARY, "writer.retries": "many"},
        {"security.sasl.password": CANARY.encode()},
        {"security.sasl.password": [CANARY]},
        {"bootstrap.servers": f"user:{CANARY}@host:9123"},
        {"bootstrap.servers": f"fluss://user:{CANARY}@host:9123"},
        {"bootstrap.servers": f"h:1,{CANARY}@host:9123"},
    ],
)
def test_settings_that_are_refused_do_not_show_the_password(values: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError) as raised:
        fluss.Config(values)
    assert CANARY not in told(raised.value)
    (key, value), *_ = values.items()
    config = fluss.Config()
    with contextlib.suppress(errors.ConfigError):
        setattr(config, find_option(key).name, value)
    assert CANARY not in repr(config)


def test_an_address_with_a_password_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUSS_BOOTSTRAP_SERVERS", f"user:{CANARY}@host:9123")
    with pytest.raises(
        errors.ConfigError, match=r"FLUSS_BOOTSTRAP_SERVERS.*takes no user"
    ) as raised:
        fluss.FlussConnection.create(fluss.Config()).result()
    assert CANARY not in told(raised.value)


def test_a_password_that_the_mechanism_cannot_send(plain_cluster: LocalCluster) -> None:
    config = fluss.Config(settings(plain_cluster, f"{CANARY}\0"))
    with pytest.raises(errors.ConfigError, match="no NUL") as raised:
        fluss.FlussConnection.create(config).result()
    assert CANARY not in told(raised.value)


def test_every_line_says_who_it_is_before_anything_else(
    plain_cluster: LocalCluster,
    make_lines: Callable[..., FaultyLines],
    heard: io.StringIO,
    tmp_path: Path,
) -> None:
    """A whole increment over lines that are watched, with the real password as the canary."""
    password = plain_cluster.info.users["admin"]
    values = settings(plain_cluster, password)
    lines = make_lines(values["bootstrap.servers"])
    config = fluss.Config({**values, "bootstrap.servers": lines.bootstrap_servers})
    shown: list[str] = []
    with done(fluss.FlussConnection.create(config)) as connection:
        admin = done(connection.get_admin())
        database = f"secrets_{os.getpid()}"
        done(admin.create_database(database))
        tables = Tables(connection, admin, database)
        table = tables.create({"id": pa.int64()}, buckets=6, bucket_keys=["id"])
        writer = table.new_append().create_writer()
        writer.write_arrow(pa.table({"id": list(range(600))}))
        writer.close()
        store = SqlCheckpointStore(f"sqlite:///{tmp_path / 'store'}")
        scan = IncrementalScan(connection, str(table.get_table_path()), "secrets", store)
        result = run_once(scan, ParquetSink(str(tmp_path / "sink")), run_key="one")
        assert result.receipt.rows == 600
        shown += [json.dumps(result.receipt.to_json()), repr(result), repr(scan), repr(store)]
        for thing in (config, connection, connection.core, connection.backend, admin, table):
            shown.append(repr(thing))
        shown += [repr(writer), repr(connection.metrics()), str(config), repr(vars(connection))]
        shown.append(json.dumps([event.to_json() for event in store.history("secrets")]))
        store.close()
        done(admin.drop_database(database, cascade=True))
    handshake = [apis.API_VERSIONS.key, apis.AUTHENTICATE.key]
    assert len(lines.histories) >= 4, "a coordinator and three servers"
    assert [calls[:2] for calls in lines.histories] == [handshake] * len(lines.histories)
    assert "connected to" in heard.getvalue()
    for text in [heard.getvalue(), *shown]:
        assert password not in text
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert password.encode() not in path.read_bytes(), path


def test_no_object_shows_or_pickles_a_password() -> None:
    config = fluss.Config(settings_of_canary())
    plain = mechanism_for("PLAIN", Credentials("u", CANARY))
    for thing in (config, config.copy(), Credentials("u", CANARY), plain, ClusterRef.of(config)):
        assert CANARY not in f"{thing!r} {thing}"
    with pytest.raises(errors.ConfigError, match="never pickled") as raised:
        pickle.dumps(config)
    assert CANARY not in told(raised.value)
    assert CANARY not in pickle.dumps(ClusterRef.of(config)).decode("latin-1")
    with pytest.raises(errors.ConfigError, match="must not travel") as raised:
        ClusterRef("prod", {"security.sasl.password": CANARY})
    assert CANARY not in str(raised.value)
    assert CANARY not in json.dumps(config.to_dict())


def settings_of_canary() -> dict[str, Any]:
    return {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "sasl",
        "security.sasl.username": "u",
        "security.sasl.password": CANARY,
    }


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://u:{CANARY}@127.0.0.1:1/db",
        f"nonsense://u:{CANARY}@host/db",
        f"u:{CANARY}@host",
        f"postgresql+psycopg2://u:{CANARY}@127.0.0.1:1/db",
        f"postgresql+psycopg2://u@127.0.0.1:1/db?password={CANARY}",
        f"sqlite:////no/such/folder/{CANARY[:0]}x.db",
    ],
)
def test_a_sql_address_that_fails_does_not_show_its_password(address: str) -> None:
    def sink() -> None:
        SqlSink(address, "t").position("name")

    def store() -> None:
        with SqlCheckpointStore(address) as opened:
            opened.names()

    for use in (sink, store):
        with pytest.raises(errors.FlussError) as raised:
            use()
        shown = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
        # The test's own source line names the variable, never the value.
        assert CANARY not in shown
        assert raised.value.__context__ is None, "it would lead to the driver's frames"
        assert CANARY not in reachable(raised.value)


def test_a_sql_password_is_used_and_not_kept(postgres_url: str) -> None:
    """The server asks for none; what arrives there is what a listener on the engine sees."""
    import sqlalchemy as sa

    given: list[Any] = []
    address = postgres_url.replace("tester@", f"tester:{CANARY}@") + "?application_name=canary"
    sink = SqlSink(address, "t")

    def connecting(_: Any, record: Any, cargs: Any, cparams: dict[str, Any]) -> None:
        given.append((cparams["password"], cparams["application_name"]))

    sa.event.listen(sink._engine, "do_connect", connecting)
    assert sink.position("name") is None
    assert given[0] == (CANARY, "canary")
    with SqlCheckpointStore(address) as store:
        assert store.names() == []


def test_a_sql_error_of_the_store_shows_no_event(sql_url: str) -> None:
    import sqlalchemy as sa

    engine = sa.create_engine(sql_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE fluss_checkpoints (name TEXT, seq BIGINT)")
    with SqlCheckpointStore(sql_url) as store:
        for use in (
            lambda: store.log.plan_event_of("name", CANARY),
            lambda: store.set_first(f"name-{CANARY}", POSITION, {"why": CANARY}),
        ):
            with pytest.raises(errors.FlussError) as raised:
                use()
            assert CANARY not in str(raised.value)
            assert raised.value.__context__ is None
            assert raised.value.__cause__ is None


def reachable(error: BaseException) -> str:
    """Every text that hangs on an error: its chain, the variables of its frames, what they hold."""
    found: list[str] = []
    seen: set[int] = set()
    pending: list[Any] = [error]
    while pending:
        one = pending.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType, threading.Thread)):
            continue
        seen.add(id(one))
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict):
            pending += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set)):
            pending += one
        elif isinstance(one, BaseException):
            pending += [one.args, one.__cause__, one.__context__, vars(one)]
            frames = [frame for frame, _ in traceback.walk_tb(one.__traceback__)]
            # A test knows the password; its own frames are not what is looked at.
            pending += [f.f_locals for f in frames if "/tests/" not in f.f_code.co_filename]
        elif hasattr(one, "__dict__"):
            pending.append(vars(one))
    return "\n".join(found)


def test_files_with_passwords_are_their_owners_alone(plain_cluster: LocalCluster) -> None:
    folder = Path(plain_cluster.info.dir)
    password = plain_cluster.info.users["admin"].encode()
    kept = [folder / "cluster.json", *folder.glob("conf/*/*"), *folder.glob("logs/*")]
    holding = [p for p in kept if p.is_file() and password in p.read_bytes()]
    assert len(holding) >= 4, "the servers' configurations"
    for path in holding:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert not [p for p in holding if p.parent.name == "logs"]
    for pid in plain_cluster.info.pids.values():
        assert password not in Path(f"/proc/{pid}/cmdline").read_bytes()
