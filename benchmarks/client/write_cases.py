"""Appends and upserts."""

from __future__ import annotations

from collections.abc import Callable

import fluss_client as fluss
from benchmarks.client.subjects import BUCKETS, KEY_BUCKETS, Subjects
from benchmarks.harness import Case, Measured, Subject


def write_cases(subjects: Subjects) -> list[Case]:
    """Each into an empty table, except for partitions, which take long to make."""
    s, ours, peer, limit = subjects, subjects.ours, subjects.peer, subjects.limit

    def fresh(
        work: Callable[[fluss.TablePath], Measured], *, key: bool = False, buckets: int = 1
    ) -> Subject:
        def subject() -> Measured:
            with s.tables.fresh(key=key, buckets=buckets) as path:
                return work(path)

        return subject

    return [
        Case(
            "append, Arrow batches",
            "B/s",
            {
                "ours": fresh(lambda path: ours.append_arrow(path, s.rows)),
                "pyfluss": fresh(lambda path: peer.append_arrow(path, s.rows)),
                "encode+socket": fresh(lambda path: limit.encode_and_produce(path, s.rows)),
                "socket": fresh(lambda path: limit.produce(path, s.rows)),
                "encode alone": fresh(lambda path: limit.encode(path, s.rows)),
            },
            {"pyfluss": 2.2, "encode+socket": 0.85},
        ),
        Case(
            "append, 16 buckets",
            "B/s",
            {
                "ours": fresh(lambda path: ours.append_arrow(path, s.rows), buckets=BUCKETS),
                "pyfluss": fresh(lambda path: peer.append_arrow(path, s.rows), buckets=BUCKETS),
            },
            {"pyfluss": 2.2},
        ),
        Case(
            f"append, {s.sizes.partitions} partitions",
            "B/s",
            {
                "ours": lambda: ours.append_arrow(s.days_to_fill, s.days),
                "pyfluss": lambda: peer.append_arrow(s.days_to_fill, s.days),
            },
        ),
        Case(
            "append, dict rows",
            "rows/s",
            {
                "ours": fresh(lambda path: ours.append_rows(path, s.dicts)),
                "pyfluss": fresh(lambda path: peer.append_rows(path, s.dicts)),
            },
            {"pyfluss": 1.2},
        ),
        Case(
            "upsert, dict rows",
            "rows/s",
            {
                "ours": fresh(lambda path: ours.upsert_rows(path, s.dicts), key=True),
                "pyfluss": fresh(lambda path: peer.upsert_rows(path, s.dicts), key=True),
            },
            {"pyfluss": 2},
        ),
        Case(
            "upsert, Arrow (pyfluss: dict rows)",
            "rows/s",
            {
                "ours": fresh(lambda path: ours.upsert_arrow(path, s.upserts), key=True),
                "pyfluss": fresh(lambda path: peer.upsert_rows(path, s.dicts), key=True),
                "socket": fresh(lambda path: limit.put(path, s.upserts), key=True),
            },
            {"pyfluss": 4, "socket": 0.75},
        ),
        Case(
            f"upsert, Arrow, {KEY_BUCKETS} buckets",
            "rows/s",
            {
                "ours": fresh(
                    lambda path: ours.upsert_arrow(path, s.upserts), key=True, buckets=KEY_BUCKETS
                ),
                "pyfluss": fresh(
                    lambda path: peer.upsert_rows(path, s.dicts), key=True, buckets=KEY_BUCKETS
                ),
            },
            {"pyfluss": 1.5},
        ),
    ]
