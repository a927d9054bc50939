"""Changelogs and look-ups."""

from __future__ import annotations

from benchmarks.client.subjects import Subjects
from benchmarks.harness import Case

TIMER_NOISE = 0.6
"""A look-up of pyfluss waits for a timer, ours for the processor: load hits only one of them."""


def key_cases(subjects: Subjects) -> list[Case]:
    """On one key table; pyfluss takes 100 ms per look-up, and so is asked few.

    Look-ups one by one are awaited, since pyfluss can do nothing else, and called by `.result()`,
    which changes threads twice for each.
    """
    s, ours, peer, sizes = subjects, subjects.ours, subjects.peer, subjects.sizes

    return [
        Case(
            "changelog rows",
            "rows/s",
            {
                "ours": lambda: ours.changelog(s.users, sizes.upsert_rows),
                "pyfluss": lambda: peer.changelog(s.users, sizes.upsert_rows),
            },
            {"pyfluss": 1.2},
        ),
        Case(
            "look-up, one by one",
            "keys/s",
            {
                "ours": lambda: s.awaited.lookup(s.users, sizes.lookups),
                "pyfluss": lambda: peer.lookup(s.users, sizes.peer_lookups),
                "socket": lambda: s.limit.lookup(s.users, sizes.lookups),
            },
            {"pyfluss": 300, "socket": 0.95},
            noise=TIMER_NOISE,
        ),
        Case(
            "look-up by .result()",
            "keys/s",
            {
                "ours": lambda: ours.lookup(s.users, sizes.lookups),
                "awaited": lambda: s.awaited.lookup(s.users, sizes.lookups),
            },
            {"awaited": 0.8},
            noise=TIMER_NOISE,
        ),
        Case(
            "look-up, all at once",
            "keys/s",
            {
                "ours": lambda: ours.lookup_at_once(s.users, sizes.lookups),
                "pyfluss": lambda: peer.lookup_at_once(s.users, sizes.peer_lookups),
            },
            noise=TIMER_NOISE,
        ),
        Case(
            "lookup_many (pyfluss: one by one)",
            "keys/s",
            {
                "ours": lambda: ours.lookup_many(s.users, sizes.many_lookups),
                "pyfluss": lambda: peer.lookup(s.users, sizes.peer_lookups),
            },
            {"pyfluss": 5_000},
            noise=TIMER_NOISE,
        ),
        Case(
            "prefix look-up, 10 rows each",
            "keys/s",
            {
                "ours": lambda: s.awaited.lookup_prefix(s.orders, sizes.orders),
                "pyfluss": lambda: peer.lookup_prefix(s.orders, sizes.peer_lookups),
            },
            noise=TIMER_NOISE,
        ),
    ]
