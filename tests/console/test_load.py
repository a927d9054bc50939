"""What a console costs: the requests that reach the servers are counted there, and its CPU time."""

from __future__ import annotations

import itertools
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

import pytest

from fluss_client import Config, FlussConnection
from fluss_client.testing import LocalCluster
from fluss_orchestrate import IncrementalScan, TableSpec, apply_tables, load_rows
from fluss_orchestrate.console.service import Console, Settings
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.overview.gathering import Gathered, Gatherer
from fluss_orchestrate.core.overview.monitor import Monitor
from tests.console.place import rows, served, visitor
from tests.fix_either import own_database
from tests.fix_proxy import FaultyLines
from tests.waiting import scaled, wait_until

VIEWERS = 30
PASSES = 4
CPU_PASSES = 12
INTERVAL_S = 5.0
CPU_SHARE_MAX = 0.05
PASS_S = 300.0


@dataclass
class Counted:
    """A console whose requests are counted, and the requests of each of its passes."""

    console: Console
    lines: FaultyLines
    passes: list[int] = field(default_factory=list)

    @property
    def requests(self) -> int:
        """The requests that the servers have got."""
        return sum(len(calls) for calls in list(self.lines.histories))

    def next_passes(self, count: int) -> list[int]:
        """The requests of the next passes."""
        start = len(self.passes)
        wait_until(f"{count} passes", lambda: len(self.passes) >= start + count, PASS_S)
        return self.passes[start : start + count]


def fill(connection: FlussConnection, database: str, tables: int, checkpoints: int) -> list[str]:
    """Log and key tables with rows, and checkpoints that are behind; the names of these."""
    specs = []
    for number in range(tables):
        value = {
            "table": f"{database}.t{number:03}",
            "columns": {"id": "bigint not null", "item": "string"},
            "buckets": 4,
            "bucket_keys": ["id"],
        }
        if number % 2:
            value = {**value, "primary_key": ["id"]}
        specs.append(TableSpec.from_mapping(value))
    apply_tables(connection, specs)
    store = FlussCheckpointStore(connection, database, "checkpoints")
    names = [f"{database}/copy {number:02}" for number in range(checkpoints)]
    for number, name in enumerate(names):
        table = f"{database}.t{number % tables:03}"
        with IncrementalScan(connection, table, name, store, start="latest").run("first") as run:
            run.to_arrow()
    for number in range(min(tables, checkpoints)):
        load_rows(connection, f"{database}.t{number:03}", rows(20), "first")
    return names


@contextmanager
def counted(
    connection: FlussConnection, database: str, lines: FaultyLines, interval_s: float
) -> Iterator[Counted]:
    """A console behind proxies that count, of one database: the tests share their cluster."""
    store = FlussCheckpointStore(connection, database, "checkpoints")
    console = Console(connection, store, None, Settings(interval_s=interval_s))
    console.gatherer = Gatherer(connection, store, database)
    seen = Counted(console, lines)

    def gather() -> Gathered:
        before = seen.requests
        found = console.gatherer.gather()
        seen.passes.append(seen.requests - before)
        return found

    console.monitor = Monitor(gather, None, interval_s)
    with console:
        assert console.monitor.look(scaled(PASS_S)).gathered is not None
        yield seen


@contextmanager
def viewing(url: str, paths: list[str], viewers: int) -> Iterator[list[int]]:
    """Viewers that load pages again and again; the status of each answer."""
    over, found = threading.Event(), []

    def view(number: int) -> None:
        with visitor(url) as client:
            for path in itertools.cycle(
                paths[number % len(paths) :] + paths[: number % len(paths)]
            ):
                if over.is_set():
                    return
                found.append(client.get(path).status_code)

    threads = [threading.Thread(target=view, args=(number,)) for number in range(viewers)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.mark.timeout(900)
def test_viewers_cost_the_servers_nothing(
    plain_cluster: LocalCluster, make_lines: Callable[..., FaultyLines], long_form: bool
) -> None:
    """One pass of questions per interval, whether one or thirty people look."""
    tables, checkpoints = (100, 50) if long_form else (6, 4)
    lines = make_lines(plain_cluster.info.bootstrap_servers)
    direct = Config({"bootstrap.servers": plain_cluster.info.bootstrap_servers})
    through = Config({"bootstrap.servers": lines.bootstrap_servers})
    with (
        FlussConnection.create(direct).result() as made,
        own_database(made, "load") as database,
        FlussConnection.create(through).result() as connection,
    ):
        names = fill(made, database, tables, checkpoints)
        overview = ["/", "/tables", "/checkpoints", "/lakes", "/api/overview", "/metrics"]
        one = [f"/checkpoint?name={quote(names[0])}"]
        with counted(connection, database, lines, 0.5) as seen, served(seen.console) as url:
            seen.next_passes(2)  # the first ones find out what later ones remember
            alone = seen.next_passes(PASSES)
            with viewing(url, overview, VIEWERS) as statuses:
                seen.next_passes(1)  # the pass that was under way
                before, served_before = seen.requests, len(statuses)
                with_viewers = seen.next_passes(PASSES)
                between = seen.requests - before - sum(with_viewers)
                # On a busy machine few pages are shown in so many passes.
                while (shown := len(statuses) - served_before) <= VIEWERS:
                    with_viewers += seen.next_passes(1)
                    between = seen.requests - before - sum(with_viewers)
            assert set(statuses) == {200}
            # A pass that begins while the window ends is not in the list yet.
            assert between <= max(with_viewers), "a page has asked the servers itself"
            assert max(with_viewers) <= max(alone) + tables
            # The events of a checkpoint are asked for by its page, once per interval for all.
            asked = []
            for viewers in (1, VIEWERS):
                with viewing(url, one, viewers) as statuses:
                    seen.next_passes(1)
                    before = seen.requests
                    of_passes = sum(seen.next_passes(PASSES))
                    asked.append(seen.requests - before - of_passes)
                assert set(statuses) == {200}
            print(
                f"{tables} tables: {max(alone)} requests per pass, {max(with_viewers)} with "
                f"{VIEWERS} viewers of {shown} pages; of one checkpoint {asked[0]} in {PASSES} "
                f"intervals for one viewer, {asked[1]} for {VIEWERS}"
            )
            assert asked[1] <= 3 * asked[0] + max(with_viewers)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_cpu_time_of_a_console(plain_cluster: LocalCluster) -> None:
    """Under 5 % of a core at one pass per 5 seconds with 100 tables, while rows arrive."""
    config = Config({"bootstrap.servers": plain_cluster.info.bootstrap_servers})
    with (
        FlussConnection.create(config).result() as connection,
        own_database(connection, "load") as database,
    ):
        names = fill(connection, database, 100, 50)
        store = FlussCheckpointStore(connection, database, "checkpoints")
        with Console(connection, store, None, Settings(interval_s=INTERVAL_S)) as console:
            assert console.monitor.look(scaled(PASS_S)).gathered is not None
            load_rows(connection, f"{database}.t000", rows(50, 1000), "more")
            used, began, passes = _cpu_s(), time.monotonic(), console.monitor.passes
            more = passes + CPU_PASSES
            wait_until("the passes", lambda: console.monitor.passes >= more, PASS_S)
            share = (_cpu_s() - used) / (time.monotonic() - began)
        assert names
        print(f"100 tables, {len(names)} checkpoints, one pass per 5 s: {share:.1%} of a core")
        assert share < CPU_SHARE_MAX


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
