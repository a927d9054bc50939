"""Scans: their speed, their memory, and how soon a fresh row is seen."""

from __future__ import annotations

from benchmarks.child import in_child
from benchmarks.client.awaited import Awaited
from benchmarks.client.ours import Ours
from benchmarks.client.subjects import IMPATIENT_WAIT_MS, Subjects
from benchmarks.harness import Case, Measured, Subject

BATCHES_MB_MAX = 40.0
"""What a scan batch by batch shall take at most."""


def read_cases(subjects: Subjects) -> list[Case]:
    """Every subject reads the same tables."""
    return [*_scans(subjects), *_memory(subjects), _fresh_row(subjects)]


def _scans(s: Subjects) -> list[Case]:
    ours, peer, rows = s.ours, s.peer, s.sizes.arrow_rows

    def partitions() -> list[int]:
        return s.tables.partition_ids(s.log_by_day)

    return [
        Case(
            "scan to Arrow",
            "B/s",
            {
                "ours": lambda: ours.scan(s.log, s.bytes),
                "pyfluss": lambda: peer.scan(s.log, s.bytes),
                "socket": lambda: s.limit.fetch(s.log, rows, s.bytes),
                "decode alone": lambda: s.limit.decode(s.log, rows, s.bytes),
            },
            {"pyfluss": 4, "socket": 0.8},
        ),
        Case(
            "scan, 1 of 4 columns",
            "rows/s",
            {
                "ours": lambda: ours.scan(s.log, rows, ["id"]),
                "pyfluss": lambda: peer.scan(s.log, rows, ["id"]),
                "socket": lambda: s.limit.fetch(s.log, rows, rows, 0),
            },
            {"pyfluss": 2},
        ),
        Case(
            "scan, 16 buckets",
            "B/s",
            {
                "ours": lambda: ours.scan(s.wide_log, s.bytes),
                "pyfluss": lambda: peer.scan(s.wide_log, s.bytes),
            },
        ),
        Case(
            f"scan, {s.sizes.partitions} partitions",
            "B/s",
            {
                "ours": lambda: ours.scan(s.log_by_day, s.bytes, None, partitions()),
                "pyfluss": lambda: peer.scan(s.log_by_day, s.bytes, None, partitions()),
            },
        ),
    ]


def _memory(s: Subjects) -> list[Case]:
    def grown(who: str, how: str) -> Subject:
        def subject() -> Measured:
            path = s.log
            where = (s.bootstrap, path.database_name, path.table_name)
            found = in_child("benchmarks.client.memory", who, how, *where)
            speed = {"MB/s": s.bytes / 1e6 / found["seconds"]}
            return Measured(found["mb"], (found["rows"], found["total"]), speed)

        return subject

    return [
        Case(
            name,
            "MB",
            {who: grown(who, how) for who in ("ours", "pyfluss")},
            bound=bound,
            lower_is_better=True,
        )
        for name, how, bound in (
            ("memory at peak, one table", "table", None),
            ("memory at peak, batches", "batches", BATCHES_MB_MAX),
        )
    ]


def _fresh_row(s: Subjects) -> Case:
    def polled(who: Ours | Awaited) -> Measured:
        with s.tables.fresh() as path:
            return who.poll_fresh(path, s.dicts[0], s.sizes.polls)

    def ours() -> Measured:
        impatient = polled(s.impatient).value
        also = {f"ms with fetches that wait {IMPATIENT_WAIT_MS} ms": impatient}
        return Measured(polled(s.ours).value, also=also)

    return Case(
        "poll, append to row",
        "ms",
        {"ours": ours, "pyfluss": lambda: polled(s.peer)},
        lower_is_better=True,
    )
