"""The processes of a soak: each has one or more roles, which go on until SIGTERM.

    python -m tests.faults.soak.programs FOLDER ROLE [ROLE ...]

A role repeats a step. A typed error is written down, and the role goes on; any other error ends
the process with a status that the soak does not forgive.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

import fluss_client as fluss
from fluss_client.errors import FlussError
from tests.contract.tables import done
from tests.faults.soak.journal import Journal, next_number
from tests.faults.soak.places import BUCKETS, KEYS, LOG, Places

BATCH = 50
KEYS_MAX = 500
UPSERTS, DELETES = 40, 3
PAUSES_S = {"append": 0.05, "upsert": 0.05, "iceberg": 2.0, "tier": 1.0}
PAUSE_S = 0.5
AFTER_REFUSAL_S = 0.3
PAGES = ("/", "/tables", "/table?name=soak.log", "/checkpoints", "/lakes", "/loads", "/metrics")
SENSOR_S = 60.0
NOT_NOW = 503
APPENDERS = ("append-0", "append-1")
SINKS = ("parquet", "sql", "iceberg", "fluss")
MIRRORS = ("sql", "iceberg", "fluss")
ROLES = (
    *APPENDERS,
    "upsert",
    *(f"increment-{kind}" for kind in SINKS),
    *(f"mirror-{kind}" for kind in MIRRORS),
    "tier",
    "state",
    "sensor",
    "console",
)

Step = Callable[[], None]


class Role:
    """What a role has: its places, its journal, and a connection of its own."""

    def __init__(self, places: Places, name: str) -> None:
        self.places = places
        self.name = name
        self.kind, _, self.which = name.partition("-")
        self.journal = Journal(places.folder, name)
        self.connection = places.connect()
        self.runs = (f"{name}-{os.getpid()}-{n}" for n in itertools.count())

    @property
    def pause_s(self) -> float:
        """The pause between two steps."""
        return PAUSES_S.get(self.which, PAUSES_S.get(self.kind, PAUSE_S))


@contextmanager
def appending(role: Role) -> Iterator[Step]:
    """Appends rows, and writes down which were acknowledged."""
    table = done(role.connection.get_table(LOG))
    writer = table.new_append().create_writer()
    at = next_number(role.journal, int(role.which))

    def step() -> None:
        nonlocal at, writer
        numbers = range(at, at + BATCH)
        at += BATCH
        role.journal.step(sent=[numbers.start, numbers.stop])
        batch = {"n": list(numbers), "text": [f"{n:016}" * 4 for n in numbers]}
        try:
            done(writer.write_arrow_batch(pa.RecordBatch.from_pydict(batch)).wait())
        except FlussError:
            writer = table.new_append().create_writer()
            raise
        role.journal.step(acknowledged=[numbers.start, numbers.stop])

    yield step


@contextmanager
def upserting(role: Role) -> Iterator[Step]:
    """Upserts and deletes rows of random keys; no other program writes these keys."""
    table = done(role.connection.get_table(KEYS))
    writer = table.new_upsert().create_writer()
    at = next_number(role.journal, 0)
    choose = random.Random(at)

    def step() -> None:
        nonlocal at, writer
        keys = choose.sample(range(KEYS_MAX), UPSERTS + DELETES)
        upserted, deleted = keys[:UPSERTS], keys[UPSERTS:]
        numbers = range(at, at + UPSERTS)
        at += UPSERTS
        sent = [numbers.start, numbers.stop]
        role.journal.step(sent=sent, keys=upserted, deleted=deleted)
        try:
            writer.write_arrow(pa.table({"id": upserted, "n": list(numbers)}))
            writer.delete_arrow(pa.RecordBatch.from_pydict({"id": deleted}))
            done(writer.flush())
        except FlussError:
            writer = table.new_upsert().create_writer()
            raise
        role.journal.step(acknowledged=sent)

    yield step


@contextmanager
def copying(role: Role) -> Iterator[Step]:
    """Takes what is new into a sink, or into a mirror."""
    work = role.places.increment if role.kind == "increment" else role.places.mirror

    def step() -> None:
        rows = work(role.which, role.connection, next(role.runs)).rows
        role.journal.step(rows=rows)

    yield step


@contextmanager
def tiering(role: Role) -> Iterator[Step]:
    """Tiers what the coordinator hands out."""
    from fluss_orchestrate import TieringWorker

    worker = TieringWorker(role.connection, allow_tiering=True, renew_interval_s=5)

    def step() -> None:
        receipt = worker.run_once()
        role.journal.step(rows=0 if receipt is None else receipt.rows)

    yield step


@contextmanager
def reading_state(role: Role) -> Iterator[Step]:
    """Reads the key table from its KV snapshots; no key may fall back to an older row."""
    from fluss_orchestrate import read_table

    seen: dict[int, int] = {}

    def step() -> None:
        rows = read_table(role.connection, str(KEYS)).read_all()
        ids = rows["id"].to_pylist()
        state = dict(zip(ids, rows["n"].to_pylist(), strict=True))
        if len(state) != len(ids):
            role.journal.wrong(f"{len(ids) - len(state)} keys come twice in one read")
        back = [key for key, n in state.items() if n < seen.get(key, n)]
        if back:
            role.journal.wrong(f"older rows than were read before, of keys {back[:5]}")
        seen.update(state)
        role.journal.step(rows=len(ids))

    yield step


@contextmanager
def sensing(role: Role) -> Iterator[Step]:
    """Waits, as sensors do, for rows that come; a wait must not end before they are there."""
    from fluss_client.engine import run_blocking
    from fluss_orchestrate.core.conditions import OffsetsReached, wait_until

    admin = done(role.connection.get_admin())

    def ends() -> dict[int, int]:
        found: dict[int, int] = done(
            admin.list_offsets(LOG, list(range(BUCKETS)), fluss.OffsetSpec.latest())
        )
        return found

    def step() -> None:
        wanted = {bucket: end + 1 for bucket, end in ends().items()}
        reached = OffsetsReached(LOG, {(None, b): end for b, end in wanted.items()}, None)
        run_blocking(wait_until(role.connection, reached, timeout_s=SENSOR_S))
        found = ends()
        if any(found[bucket] < end for bucket, end in wanted.items()):
            role.journal.wrong(f"fired for {wanted} at {found}")
        role.journal.step(reached=list(wanted.values()))

    yield step


@contextmanager
def viewing(role: Role) -> Iterator[Step]:
    """Serves the console, and looks at its pages as a browser does."""
    from fluss_orchestrate.console.service import Console, Settings
    from tests.console.place import served

    store = role.places.store(role.connection)
    pages = itertools.cycle(PAGES)
    with (
        Console(role.connection, store, None, Settings(interval_s=2.0)) as console,
        served(console, may_act=False) as url,
    ):

        def step() -> None:
            page = next(pages)
            try:
                with urllib.request.urlopen(url + page, timeout=SENSOR_S) as answer:
                    size = len(answer.read())
            except urllib.error.HTTPError as error:
                if error.code == NOT_NOW:
                    role.journal.refused(error)
                else:
                    role.journal.wrong(f"{page}: {error.code}")
                return
            role.journal.step(page=page, size=size)

        yield step


STEPS = {
    "append": appending,
    "upsert": upserting,
    "increment": copying,
    "mirror": copying,
    "tier": tiering,
    "state": reading_state,
    "sensor": sensing,
    "console": viewing,
}


def play(places: Places, name: str, over: threading.Event) -> None:
    """Repeat the steps of a role until it is over; begin it anew when its beginning is refused."""
    journal = Journal(places.folder, name)
    while not over.is_set():
        try:
            role = Role(places, name)
            with role.connection, STEPS[role.kind](role) as step:
                while not over.is_set():
                    _try(step, role, over)
        except FlussError as error:
            journal.refused(error)
            over.wait(AFTER_REFUSAL_S)
        except BaseException:  # noqa: BLE001 (told to whoever reads, then the process ends)
            journal.wrong(traceback.format_exc())
            os._exit(1)


def _try(step: Step, role: Role, over: threading.Event) -> None:
    try:
        step()
    except FlussError as error:
        role.journal.refused(error)
        over.wait(AFTER_REFUSAL_S)
    over.wait(role.pause_s)


def main() -> None:
    folder, *names = sys.argv[1:]
    places = Places.load(Path(folder))
    over = threading.Event()
    # No thread takes the signal from the one that waits for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threads = [threading.Thread(target=play, args=(places, name, over)) for name in names]
    for thread in threads:
        thread.start()
    signal.sigwait({signal.SIGTERM})
    over.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
