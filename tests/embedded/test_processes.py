"""Many processes on one directory: writing at once, reading at once, killed at any moment."""

from __future__ import annotations

import functools
import random
from collections import Counter
from pathlib import Path

import pytest

from fluss_client.backend.embedded.maintenance import check
from tests.embedded import worker
from tests.embedded.helpers import Row, key_state, on_loop, opened, read_rows
from tests.faults.recording import FaultRecorder
from tests.forked import finish, start
from tests.waiting import let_pass, wait_until, within

WRITERS, READERS, ROUNDS = 4, 2, 30
KILLS_SHORT, KILLS_LONG = 20, 300
WRITERS_AT_ONCE = 3
LONGEST_LIFE_S = 0.15
SHARE_KILLED_WRITING = 0.8


async def content(path: Path) -> tuple[list[Row], list[Row]]:
    async with opened(path) as backend:
        log, keys = await worker.tables(backend)
        return await read_rows(backend, log), await key_state(backend, keys)


def acknowledged(path: Path) -> tuple[set[tuple[int, int]], dict[int, int]]:
    """The appends that were acknowledged, and per worker the last acknowledged upsert."""
    appends: set[tuple[int, int]] = set()
    upserts: dict[int, int] = {}
    for file in path.glob("acks-*"):
        # A line that the kill cut off was not acknowledged to anybody.
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                kind, number, seq = line.split()
                if kind == "log":
                    appends.add((int(number), int(seq)))
                else:
                    upserts[int(number)] = int(seq)
    return appends, upserts


def test_writers_and_readers_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    on_loop(worker.make_tables(folder))
    total = WRITERS * sum(worker.batch_size(seq) for seq in range(ROUNDS))
    running = [
        start(worker.write, str(folder), n, str(tmp_path / f"acks-{n}"), ROUNDS)
        for n in range(WRITERS)
    ]
    running += [start(worker.read_until, str(folder), total) for _ in range(READERS)]
    for process in running:
        finish(process)
    rows, _ = on_loop(content(folder))
    assert len(rows) == total
    counts = Counter((row["worker"], row["seq"]) for row in rows)
    assert counts == {
        (n, seq): worker.batch_size(seq) for n in range(WRITERS) for seq in range(ROUNDS)
    }
    assert check(folder) == []


def run_kills(tmp_path: Path, kills: int, record_fault: FaultRecorder) -> None:
    folder = tmp_path / "d"
    on_loop(worker.make_tables(folder))
    chance = random.Random(kills)
    numbers = iter(range(1_000_000))
    alive = []
    for _ in range(kills):
        while len(alive) < WRITERS_AT_ONCE:
            acks = tmp_path / f"acks-{next(numbers)}"
            number = int(acks.name.removeprefix("acks-"))
            process = start(worker.write, str(folder), number, str(acks), None)
            alive.append((process, acks))
        victim, acks = alive.pop(chance.randrange(len(alive)))
        # Most are killed while they write, some while they start.
        if chance.random() < SHARE_KILLED_WRITING:
            wrote = functools.partial(_has_bytes, acks)
            wait_until("the first acknowledgement", wrote, pause_s=0.005)
        let_pass(chance.uniform(0, LONGEST_LIFE_S), "a kill comes at any moment")
        assert victim.exitcode is None, "a writer ended by itself"
        victim.kill()
        victim.join()
    for process, _ in alive:
        assert process.exitcode is None, "a writer ended by itself"
        process.kill()
        process.join()
    assert check(folder) == []
    appends, upserts = acknowledged(tmp_path)
    rows, state = on_loop(content(folder))
    counts = Counter((row["worker"], row["seq"]) for row in rows)
    once = {(r["worker"], r["seq"], r["n"]) for r in rows}
    record_fault(
        "kill -9 of embedded writers",
        kills + len(alive),
        lost=sum(worker.batch_size(seq) - counts[n, seq] for n, seq in appends),
        doubled=len(rows) - len(once),
        seed=kills,
    )
    assert all(count == worker.batch_size(seq) for (_, seq), count in counts.items())
    assert appends <= counts.keys()
    # What was not acknowledged may be there too: the last batch of each victim.
    assert len(counts.keys() - appends) <= kills + WRITERS_AT_ONCE
    newest: dict[int, int] = {}
    for row in state:
        newest[row["worker"]] = max(newest.get(row["worker"], -1), row["seq"])
    for number, seq in upserts.items():
        survivors = [s for s in range(seq + 1) if any(not _deleted(s, n) for n in _numbers(s))]
        if survivors:
            assert newest.get(number, -1) >= survivors[-1]
    assert len(appends) > kills, "the writers got too little done for the test to mean anything"


def _has_bytes(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def _numbers(seq: int) -> list[int]:
    return [(seq + n) % worker.KEYS_PER_WORKER for n in range(worker.batch_size(seq))]


def _deleted(seq: int, number: int) -> bool:
    return seq % 7 == 0 and number % 3 == 0


@pytest.mark.timeout(400)
def test_killed_writers_lose_and_spoil_nothing(tmp_path: Path, record_fault: FaultRecorder) -> None:
    run_kills(tmp_path, KILLS_SHORT, record_fault)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_hundreds_of_killed_writers_lose_and_spoil_nothing(
    tmp_path: Path, record_fault: FaultRecorder
) -> None:
    run_kills(tmp_path, KILLS_LONG, record_fault)


def test_many_processes_may_make_the_directory_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    for process in [start(worker.open_only, str(folder)) for _ in range(8)]:
        finish(process)
    assert check(folder) == []


def test_a_killed_writer_blocks_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    on_loop(worker.make_tables(folder))
    mark = tmp_path / "holding"
    holder = start(worker.hold_lock, str(folder), str(mark))
    wait_until("the lock", mark.exists)
    holder.kill()
    holder.join()
    with within(30, "the other writer"):
        finish(start(worker.write, str(folder), 1, str(tmp_path / "acks-1"), 1))
    assert check(folder) == []
