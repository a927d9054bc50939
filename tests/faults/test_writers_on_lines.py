"""Writers while their lines fail again and again: what was acknowledged is there, once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client.errors import WriteError
from fluss_client.testing import LocalCluster
from fluss_client.wire import apis
from tests.contract.tables import done
from tests.faults.ground import SCHEMA, Ground, rows
from tests.faults.recording import FaultRecorder
from tests.fix_proxy import KINDS, Fault, FaultyLines

PATIENCE = {"connect-timeout": "1s", "request-timeout": "500ms", "retry-timeout": "60s"}
ROUNDS_SHORT, ROUNDS_LONG = 8, 200
ROWS = 20
CHANCE = 0.35
STALL_S = 0.7
AT_ONCE = 5
BUCKETS = 4
"""So that each writer has several connections to a server."""


@dataclass
class Written:
    """What a writer sent, and what became of it."""

    acknowledged: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    found: Counter[int] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        return len(self.acknowledged - self.found.keys())

    @property
    def doubled(self) -> int:
        return self.found.total() - len(self.found)


@contextmanager
def resumed_every(lines: FaultyLines, seconds: float) -> Iterator[None]:
    """Stalls end after a while."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(seconds):
            lines.resume()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def write(ground: Ground, lines: FaultyLines, faults: list[Fault], rounds: int) -> list[Written]:
    """Append to a log table and upsert into a key table, round after round."""
    log = ground.tables.create(SCHEMA, buckets=BUCKETS)
    keys = ground.tables.create(SCHEMA, ["id"], buckets=BUCKETS)
    outcomes = [Written(), Written()]
    config = fluss.Config({"bootstrap.servers": lines.bootstrap_servers, **PATIENCE})
    with done(fluss.FlussConnection.create(config)) as connection:
        tables = [done(connection.get_table(t.get_table_path())) for t in (log, keys)]
        writers = [tables[0].new_append().create_writer(), tables[1].new_upsert().create_writer()]
        lines.inject(*faults)
        with resumed_every(lines, STALL_S):
            for at in range(rounds):
                ids = range(at * ROWS, (at + 1) * ROWS)
                for writer, outcome in zip(writers, outcomes, strict=True):
                    try:
                        writer.write_arrow(rows(ids))
                        done(writer.flush())
                        outcome.acknowledged |= set(ids)
                    except WriteError:
                        outcome.unknown |= set(ids)
        lines.restore()
    for table, outcome in zip((log, keys), outcomes, strict=True):
        found: pa.Table = ground.tables.log(table)
        outcome.found = Counter(found["id"].to_pylist())
        texts = dict(zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True))
        changed = [i for i, text in texts.items() if text != f"{i:08}" * 20]
        assert changed == [], f"{table.get_table_path()}: {table.get_table_info().primary_keys}"
        assert outcome.found.keys() <= outcome.acknowledged | outcome.unknown
    return outcomes


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("in_request", [False, True])
def test_acknowledged_rows_are_there_once(
    in_request: bool,
    ground: Ground,
    plain_cluster: LocalCluster,
    make_lines: Callable[..., FaultyLines],
    record_fault: FaultRecorder,
    fault_seed: int,
    long_form: bool,
) -> None:
    bootstrap = plain_cluster.info.bootstrap_servers
    rounds = ROUNDS_LONG if long_form else ROUNDS_SHORT

    def work(kind: str) -> tuple[str, int, list[Written]]:
        lines = make_lines(bootstrap, fault_seed + KINDS.index(kind))
        struck_calls = [apis.PRODUCE_LOG, apis.PUT_KV]
        if in_request and kind == "corrupt":
            # Fluss 0.9 sums up log batches only: a flipped bit in a key batch becomes a value.
            struck_calls = struck_calls[:1]
        faults = [Fault(kind, a.key, in_request, None, CHANCE) for a in struck_calls]
        outcomes = write(ground, lines, faults, rounds)
        return kind, lines.struck.total(), outcomes

    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(work, KINDS))
    where = "request" if in_request else "answer"
    for kind, struck, outcomes in results:
        assert sum(len(o.acknowledged) for o in outcomes) > 0, f"{kind}: nothing got through"
        record_fault(
            f"writer: {kind} in the {where}",
            struck,
            lost=sum(o.lost for o in outcomes),
            doubled=sum(o.doubled for o in outcomes),
            seed=fault_seed,
        )


def test_the_buckets_of_a_writer_share_a_few_lines(
    ground: Ground, plain_cluster: LocalCluster, make_lines: Callable[..., FaultyLines]
) -> None:
    table = ground.tables.create(SCHEMA, ["id"], buckets=3 * BUCKETS)
    info = plain_cluster.info
    lines = make_lines(info.sasl_bootstrap_servers)
    limit = 3
    user, password = next(iter(info.users.items()))
    config = fluss.Config(
        {
            "bootstrap.servers": lines.bootstrap_servers,
            "security.protocol": "sasl",
            "security.sasl.username": user,
            "security.sasl.password": password,
            "writer.connections-per-server": limit,
        }
    )
    with done(fluss.FlussConnection.create(config)) as connection:
        writer = done(connection.get_table(table.get_table_path())).new_upsert().create_writer()
        for start in range(0, 3 * ROWS, ROWS):
            writer.write_arrow(rows(range(start, start + ROWS)))
            done(writer.flush())
        carrying = [calls for calls in lines.histories if apis.PUT_KV.key in calls]
        opened = lines.open_lines
    tablets = ground.nodes - 1
    assert all(apis.AUTHENTICATE.key in calls for calls in carrying)
    assert len(carrying) == limit * tablets, "each server leads more buckets than it has lines"
    assert opened <= limit * tablets + 1, "the coordinator has one line"
    assert ground.tables.log(table).num_rows == 3 * ROWS
