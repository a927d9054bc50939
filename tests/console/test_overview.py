"""One pass: what it says, what it does not know, how many are made, and what is kept."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fluss_client import Config, FlussConnection, TablePath
from fluss_client.backend.embedded import backend as embedded_backend
from fluss_client.backend.embedded.log import appends as embedded_log
from fluss_orchestrate import IncrementalScan, TableSpec, apply_tables, load_rows
from fluss_orchestrate.console import formats, prometheus, views
from fluss_orchestrate.console.static_page import static_page
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore, SqlCheckpointStore
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.overview.commit_times import KnownTimes
from fluss_orchestrate.core.overview.figures import CheckpointFigures, Expiry, Overview
from fluss_orchestrate.core.overview.gathering import Gathered, Gatherer
from fluss_orchestrate.core.overview.monitor import Answers, Monitor
from fluss_orchestrate.core.overview.samples import COARSE, RINGS, Samples
from tests.console.place import console_of, rows, served, visitor
from tests.waiting import let_pass, wait_until

HOUR_MS = 3_600_000


@pytest.fixture
def here(tmp_path: Path) -> Iterator[FlussConnection]:
    config = Config({"bootstrap.servers": f"embedded:{tmp_path / 'fluss'}"})
    with FlussConnection.create(config).result() as connection:
        yield connection


def table(here: FlussConnection, name: str = "events", buckets: int = 1, ttl: str = "1 h") -> str:
    value = {
        "bucket_keys": ["id"],
        "table": f"shop.{name}",
        "columns": {"id": "bigint", "item": "string"},
        "buckets": buckets,
        "properties": {"table.log.ttl": ttl},
    }
    apply_tables(here, [TableSpec.from_mapping(value)])
    return f"shop.{name}"


def read_all(here: FlussConnection, path: str, name: str) -> None:
    with IncrementalScan(here, path, name).run(f"run {time.time_ns()}") as run:
        run.to_arrow()


def only(gathered: Gathered) -> CheckpointFigures:
    [one] = gathered.overview.checkpoints
    return one


def test_the_time_until_retention_is_that_of_the_oldest_unread_row(
    here: FlussConnection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = table(here)
    gatherer, now = Gatherer(here), now_ms()
    read_all(here, path, "cp")
    assert only(gatherer.gather()).expiry is Expiry.READ
    for number, age in enumerate((50 * 60_000, 20 * 60_000)):
        monkeypatch.setattr(embedded_log, "now_ms", lambda age=age: now - age)
        load_rows(here, path, rows(10), f"aged {number}")
    monkeypatch.undo()
    one = only(gatherer.gather())
    assert (one.unread, one.expiry, one.buckets_unknown) == (20, Expiry.KNOWN, 0)
    assert one.oldest_ms == now - 50 * 60_000
    assert one.expires_ms == now + 10 * 60_000
    assert views.expiry_text(one).startswith(("10 min", "9 min"))
    assert [n.level for n in views.notices(gatherer.gather().overview)] == ["bad"]


def test_rows_that_were_deleted_unread_are_lost(
    here: FlussConnection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = table(here)
    read_all(here, path, "cp")
    old = now_ms() - 2 * HOUR_MS
    monkeypatch.setattr(embedded_log, "now_ms", lambda: old)
    # Two batches, as a slow machine may make of one load; each write deletes what is due.
    for number in range(2):
        load_rows(here, path, rows(5, 5 * number), f"old {number}")
    monkeypatch.undo()
    monkeypatch.setattr(embedded_backend, "EXPIRY_INTERVAL_S", 0.0)
    load_rows(here, path, rows(5), "new")
    one = only(Gatherer(here).gather())
    assert (one.lost, one.unread, one.expiry) == (10, 15, Expiry.PASSED)
    assert one.expires_ms is not None


def test_what_is_not_known_is_not_guessed(
    here: FlussConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(here, buckets=8)
    read_all(here, path, "cp")
    load_rows(here, path, rows(4000), "many")
    gatherer = Gatherer(here)
    gatherer._times = KnownTimes(probes_max=1)
    first = only(gatherer.gather())
    assert first.buckets_behind == 8
    assert (first.expiry, first.buckets_unknown) == (Expiry.PARTLY, 7)
    assert views.expiry_text(first).endswith("or less")
    # The next passes ask for the rest, and keep what they know.
    for left in (6, 5):
        assert only(gatherer.gather()).buckets_unknown == left
    gatherer._times = KnownTimes(probes_max=0)
    unknown = only(gatherer.gather())
    assert (unknown.expiry, unknown.expires_ms) == (Expiry.UNKNOWN, None)
    assert views.expiry_text(unknown) == "unknown"
    said = prometheus.exposition(gatherer.gather().overview)
    assert "fluss_checkpoint_retention_seconds{" not in said
    assert "fluss_checkpoint_retention_unknown_buckets" in said
    assert only(Gatherer(here).gather()).expiry is Expiry.KNOWN


def test_a_table_that_keeps_its_rows_and_one_that_was_made_again(here: FlussConnection) -> None:
    path = table(here, ttl="0 s")
    read_all(here, path, "cp")
    load_rows(here, path, rows(3), "some")
    one = only(Gatherer(here).gather())
    assert (one.expiry, one.expires_ms, one.unread) == (Expiry.NEVER, None, 3)
    here.get_admin().result().drop_table(TablePath.parse(path)).result()
    assert "there is no table" in only(Gatherer(here).gather()).problem
    table(here)
    assert "created again" in only(Gatherer(here).gather()).problem


@pytest.mark.parametrize("kind", ["fluss", "sql"])
def test_heads_are_read_together_and_never_stale(
    here: FlussConnection, kind: str, tmp_path: Path
) -> None:
    path = table(here)
    store: CheckpointStore = (
        FlussCheckpointStore(here, "shop", "checkpoints")
        if kind == "fluss"
        else SqlCheckpointStore(f"sqlite:///{tmp_path / 'store.sqlite'}")
    )
    with store:
        for number in range(3):
            with IncrementalScan(here, path, f"cp {number}", store).run("run 1") as run:
                run.to_arrow()
        names = ["cp 0", "cp 1", "cp 2", "no such"]
        first = store.heads(names)
        assert list(first) == names[:3]
        assert all(first[name].nonce == store.require(name).nonce for name in names[:3])
        again = store.heads(names, first)
        assert all(again[name] is first[name] for name in names[:3])
        store.retire("cp 1", "done")
        later = store.heads(names, again)
        assert later["cp 1"].state.retired
        assert later["cp 0"] is first["cp 0"]
        wrong = {"cp 0": replace(first["cp 0"], nonce="of a table that was dropped")}
        assert store.heads(["cp 0"], wrong)["cp 0"].nonce == first["cp 0"].nonce


def test_one_pass_per_interval_for_many_viewers(here: FlussConnection) -> None:
    path = table(here)
    read_all(here, path, "cp")
    asked: list[float] = []
    with console_of(here, interval_s=0.6) as console:
        gather = console.monitor._gather

        def counted() -> Gathered:
            asked.append(time.monotonic())
            return gather()

        console.monitor._gather = counted
        with served(console) as url:

            def look() -> None:
                with visitor(url) as client:
                    for path in ("/", "/checkpoints", "/api/overview", "/metrics", "/loads"):
                        assert client.get(path).status_code == 200

            began, passes = time.monotonic(), len(asked)
            viewers = [threading.Thread(target=look) for _ in range(20)]
            for viewer in viewers:
                viewer.start()
            for viewer in viewers:
                viewer.join()
            took = time.monotonic() - began
    assert len(asked) - passes <= took / 0.6 + 1
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert all(gap >= 0.6 for gap in gaps)


def test_a_monitor_rests_while_nobody_looks_and_says_when_it_fails() -> None:
    from fluss_client.errors import TimedOutError

    empty = Overview(1, 1, "a", "b", 1, (), ())
    fails = threading.Event()

    def gather() -> Gathered:
        if fails.is_set():
            raise TimedOutError("nobody answers")
        return Gathered(replace(empty, observed_ms=now_ms()))

    monitor = Monitor(gather, interval_s=0.02, idle_s=0.1)
    monitor.start()
    first = monitor.look()
    assert first.gathered is not None

    def rests() -> bool:
        passes = monitor.passes
        let_pass(0.3, "a pass would come every 0.02 s")
        return monitor.passes == passes

    wait_until("the rest, as nobody looks", rests)
    fails.set()
    later = monitor.pass_now()
    assert later.problem == "nobody answers"
    assert later.gathered is not None, "the old figures are still there"
    assert "fluss_up 0" in prometheus.exposition(later.gathered.overview, later.problem)
    monitor.stop()


def test_answers_are_shared_and_errors_are_not_kept() -> None:
    answers, asked = Answers(60), []

    def ask() -> int:
        asked.append(1)
        let_pass(0.05, "the others ask meanwhile")
        return len(asked)

    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(answers.get("a", ask))) for _ in "12345"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 5
    with pytest.raises(ZeroDivisionError):
        answers.get("b", lambda: 1 // 0)
    assert answers.get("b", lambda: 2) == 2
    answers.forget()
    assert answers.get("a", ask) == 2


def test_samples_are_bounded_and_survive_a_restart(tmp_path: Path) -> None:
    now = now_ms()
    one = CheckpointFigures("cp", "a.b", unread=5, oldest_ms=now - 1000, expires_ms=now + 9000)
    overview = Overview(now, 7, "alias", "address", 1, (), (one,))
    samples = Samples(tmp_path / "deep" / "samples.sqlite")
    ring = RINGS[0]
    for step in range(ring.length * 2, 0, -1):
        at = now - step * ring.step_ms
        samples.add(replace(overview, observed_ms=at, checkpoints=(replace(one, unread=step),)))
        samples.add(replace(overview, observed_ms=at + 1))  # the same minute: not due
    found = samples.of_checkpoint("cp")
    assert ring.length - 2 <= len(found) <= ring.length
    assert [s.values[0] for s in found] == sorted((s.values[0] for s in found), reverse=True)
    assert (
        len(samples.of_checkpoint("cp", COARSE)) == ring.length * 2 * 60_000 // RINGS[1].step_ms + 1
    )
    rows_kept = samples._database.execute("SELECT count(*) FROM sample").fetchone()[0]
    assert rows_kept <= sum(r.length for r in RINGS)
    samples.add(overview)
    samples.close()
    again = Samples(tmp_path / "deep" / "samples.sqlite")
    assert again.newest() == overview
    monitor = Monitor(lambda: Gathered(overview), again)
    assert monitor.look(0).remembered
    later = replace(overview, observed_ms=now + 8 * 24 * HOUR_MS, checkpoints=())
    again.add(later)
    assert again._database.execute("SELECT count(*) FROM series").fetchone()[0] == 0
    again._database.execute("UPDATE kept SET body=?", (b"no",))
    assert again.newest() is None
    again.close()


def test_figures_survive_json(here: FlussConnection) -> None:
    path = table(here)
    read_all(here, path, "cp")
    load_rows(here, path, rows(3), "some")
    IncrementalScan(here, path, "cp").plan("pending")
    overview = Gatherer(here).gather().overview
    assert Overview.from_json(json.loads(json.dumps(overview.to_json()))) == overview
    assert overview.checkpoints[0].pending is not None


def test_the_static_page_needs_nothing(here: FlussConnection) -> None:
    path = table(here)
    read_all(here, path, "<script>alert(1)</script>")
    text = static_page(Gatherer(here).gather().overview)
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in text
    assert "href=" not in text
    assert "http://" not in text


def test_numbers_for_people() -> None:
    assert formats.duration(7_500_000) == "2 h 5 min"
    assert formats.duration(7_200_000) == "2 h"
    assert formats.duration(59_400) == "59 s"
    assert formats.duration(0) == "0 s"
    assert formats.duration(90_061_000) == "1 d 1 h"
    assert formats.compact(999) == "999"
    assert formats.compact(1_234_567) == "1.23 M"
    assert formats.size(1_500) == "1.5 kB"
    assert formats.number(None) == formats.NONE
    assert formats.counted(1, "range") == "1 range"
