"""A small shop that commands work on: embedded and on real clusters, one of them with a lake."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.running import Cli
from tests.leftovers import no_process_is_left  # noqa: F401
from tests.waiting import let_pass

_numbers = itertools.count()
CREATE_ATTEMPTS_MAX = 8

SPECS = """
tables:
  - table: {database}.orders
    columns:
      order_id: bigint not null
      region: string not null
      amount: decimal(12,2)
      note: string
    primary_key: [order_id, region]
    bucket_keys: [order_id]
    buckets: 2
    comment: one row per order
  - table: {database}.events
    columns: {{event_id: bigint, name: string, at: timestamp(3)}}
    bucket_keys: [event_id]
    buckets: 2
    lake: {lake}
  - table: {database}.days
    columns: {{day: string, n: int}}
    partition_keys: [day]
    buckets: 1
"""


@dataclass(frozen=True)
class Shop:
    """A database with its tables, and the command line for it."""

    cli: Cli
    database: str
    address: str
    folder: Path

    @property
    def orders(self) -> str:
        """The key table."""
        return f"{self.database}.orders"

    @property
    def events(self) -> str:
        """The log table."""
        return f"{self.database}.events"

    @property
    def days(self) -> str:
        """The table with partitions."""
        return f"{self.database}.days"

    def file(self, name: str, text: str) -> str:
        """A file of this text."""
        path = self.folder / name
        path.write_text(text)
        return str(path)


@pytest.fixture(scope="module")
def shop(fluss_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The shop on the embedded engine, and on a real cluster."""
    yield from _open_shop(tmp_path_factory.mktemp("shop"), fluss_address, lake=False)


@pytest.fixture(scope="module")
def lake_shop(lake_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The same where events have a lake."""
    yield from _open_shop(tmp_path_factory.mktemp("lake-shop"), lake_address, lake=True)


@pytest.fixture(scope="module")
def local_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The shop on the embedded engine alone."""
    folder = tmp_path_factory.mktemp("local-shop")
    yield from _open_shop(folder, f"embedded:{folder / 'fluss'}", lake=True)


def _open_shop(folder: Path, address: str, lake: bool) -> Iterator[Shop]:
    cli = Cli(folder / "config", address)
    shop = Shop(cli, "", address, folder)
    for attempt in range(CREATE_ATTEMPTS_MAX):
        shop = Shop(cli, f"cli_{os.getpid()}_{next(_numbers)}", address, folder)
        text = SPECS.format(database=shop.database, lake=str(lake).lower())
        result = cli.run("tables", "apply", shop.file("tables.yaml", text))
        if result.exit_code == 0:
            break
        # Fluss 0.9 may forget a lake table that it has just made, but not its Iceberg table; and
        # its catalog is one SQLite file, which others may hold.
        known = ("exist", "locked", "the coordinator does not know it")
        assert any(words in result.stderr for words in known), result.stderr
        cli.run("databases", "drop", shop.database, "--cascade", "--yes")
        let_pass(attempt, "others hold the catalog for a while")
    else:
        raise AssertionError(result.stderr)
    yield shop
    cli.run("databases", "drop", shop.database, "--cascade", "--yes")
