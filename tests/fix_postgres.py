"""A PostgreSQL server on loopback, in a folder of its own, for what keeps its state in SQL."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fluss_client.testing.launching import pick
from tests.leftovers import MARK
from tests.needs import unavailable

USER = "tester"
DEBIAN_FOLDERS = "/usr/lib/postgresql"

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The SQLAlchemy URL of an empty database."""
    with postgres_server() as url:
        yield url


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server for the block, and return the SQLAlchemy URL of an empty database of it."""
    programs = _programs()
    # Its own user must be able to enter, which pytest's folders do not allow.
    with tempfile.TemporaryDirectory(prefix="fluss-postgres-") as name:
        folder = Path(name)
        account = _unprivileged(folder)
        data = folder / "data"
        _run(account, programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8")
        port = pick(set())
        options = f"-h 127.0.0.1 -p {port} -k {folder} -F"
        control = (programs / "pg_ctl", "-D", data, "-w")
        _run(account, *control, "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql+psycopg2://{USER}@127.0.0.1:{port}/postgres"
        finally:
            _run(account, *control, "-m", "immediate", "stop")


@pytest.fixture(params=["sqlite", "postgres"])
def sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The SQLAlchemy URL of an empty database of this test's own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    server: str = request.getfixturevalue("postgres_url")
    return new_database(server)


def new_database(server: str) -> str:
    """The SQLAlchemy URL of an empty database on the server of a URL."""
    name = f"test_{next(_numbers)}"
    administer(server, f"CREATE DATABASE {name}")
    return f"{server.rpartition('/')[0]}/{name}"


def administer(server: str, *statements: str) -> None:
    """Run statements that cannot be part of a transaction."""
    import sqlalchemy as sa  # the unit tests of other Pythons have none

    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def _programs() -> Path:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    for folder in sorted(Path(DEBIAN_FOLDERS).glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    unavailable("a PostgreSQL server", "apt-get install postgresql")


def _unprivileged(folder: Path) -> str | None:
    """The account that the server runs under: PostgreSQL refuses root's."""
    if os.getuid() != 0:
        return None
    shutil.chown(folder, "nobody")
    return "nobody"


def _run(account: str | None, *command: object) -> None:
    # It lives as long as the session: a module that counts what it left behind must not count it.
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    done = subprocess.run(
        [str(part) for part in command],
        user=account,
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stderr
