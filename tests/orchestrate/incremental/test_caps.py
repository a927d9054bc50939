"""Plans with a bound: whole batches, shared fairly, and everything in the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.errors import ConfigError
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.incremental.planning.limits import share
from fluss_orchestrate.core.plan import Place
from tests.orchestrate.incremental.events import EventTables, rows

MakeScan = Callable[..., IncrementalScan]


@given(
    st.dictionaries(st.tuples(st.none(), st.integers(0, 20)), st.integers(0, 1000)),
    st.integers(1, 3000),
)
def test_shares_are_fair_and_fit(backlogs: dict[Place, int], offsets_max: int) -> None:
    shares = share(backlogs, offsets_max)
    waiting = {place: n for place, n in backlogs.items() if n}
    total = sum(shares.values())
    assert total == min(offsets_max, sum(waiting.values()))
    assert all(0 < count <= waiting[place] for place, count in shares.items())
    if len(waiting) <= offsets_max:
        assert shares.keys() == waiting.keys()
        cut = [shares[p] for p in shares if shares[p] < waiting[p]]
        if cut:
            assert max(cut) - min(cut) <= 1
            assert min(cut) + 1 >= max(shares.values())


def test_capped_plans_add_up_and_end_between_batches(
    tables: EventTables, make_scan: MakeScan
) -> None:
    table = tables.events(buckets=2)
    for start in range(0, 100, 20):
        tables.append(table, rows(range(start, start + 20)))
    scan = make_scan(table, metadata_columns=["_bucket", "_offset", "_timestamp"])
    everything = scan.read(
        make_scan(table, name="all", metadata_columns=["_bucket", "_offset", "_timestamp"]).plan(
            "x"
        )
    ).read_all()
    ends = {0: {0}, 1: {0}}
    for row in everything.to_pylist():
        last = max(
            r["_offset"]
            for r in everything.to_pylist()
            if (r["_bucket"], r["_timestamp"]) == (row["_bucket"], row["_timestamp"])
        )
        ends[row["_bucket"]].add(last + 1)
    found: list[int] = []
    number = 0
    while True:
        plan = scan.plan(f"run-{number}", max_offsets=15)
        if plan.is_empty:
            break
        assert plan.offsets < 15 + 2 * 20
        for r in plan.ranges:
            assert r.stop in ends[r.bucket]
        found += scan.read(plan).read_all()["id"].to_pylist()
        scan.commit(plan)
        number += 1
    assert sorted(found) == list(range(100))
    assert number >= 3


def test_a_cap_takes_at_least_one_batch(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events(buckets=1)
    tables.append(table, rows(range(50)))
    tables.append(table, rows(range(50, 60)))
    scan = make_scan(table)
    with scan.run("one", max_offsets=1) as run:
        assert run.to_arrow().num_rows == 50
    with pytest.raises(ConfigError, match="at least 1"):
        scan.plan("two", max_offsets=0)
