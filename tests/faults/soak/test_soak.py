"""The soak: everything at once on three servers, with one fault after the other, for an hour.

`make soak MINUTES=60` runs the long form and writes its figures to docs/reliability.md; the short
one has the first faults of the same seed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import pytest

from fluss_client.testing import LocalCluster
from tests.faults.recording import FaultRecorder
from tests.faults.soak.faults import Faults
from tests.faults.soak.history import Findings
from tests.faults.soak.judging import Judge
from tests.faults.soak.places import Places, create_tables
from tests.faults.soak.programs import ROLES
from tests.faults.soak.running import Program, Sampler
from tests.fix_cluster import REPLICATES_SOON
from tests.fix_proxy import FaultyLines
from tests.waiting import WAIT_S, let_pass, wait_until

MINUTES_VARIABLE = "FLUSS_SOAK_MINUTES"
MINUTES = 60.0
FAULT_EVERY_S = 60.0
SAMPLE_EVERY_S = 5.0
SHORT = ("tablet server killed", "own process killed")
SERVERS = 3
GO_ON_S = 3 * WAIT_S
CONFIG = {
    "default.replication.factor": str(SERVERS),
    # What was acknowledged is on two servers, so one fault at a time can lose nothing.
    "log.replica.min-in-sync-replicas-number": "2",
    "log.replica.high-watermark.checkpoint-interval": "100ms",
    "kv.snapshot.interval": "5s",
    **REPLICATES_SOON,
}


class Soak:
    """One run."""

    def __init__(self, cluster: LocalCluster, lines: FaultyLines, places: Places) -> None:
        self.cluster = cluster
        self.lines = lines
        self.places = places
        self.hung: list[str] = []

    def go_on(self, programs: Sequence[Program]) -> None:
        """Wait until each role has made a step; those that make none for long are hung."""
        before = {program.name: program.progress() for program in programs}

        def waiting() -> list[str]:
            return [
                role
                for program in programs
                for role, old, new in zip(
                    program.roles, before[program.name], program.progress(), strict=True
                )
                if new == old
            ]

        try:
            wait_until("a step of each role", lambda: not waiting(), GO_ON_S)
        except AssertionError:
            self.hung += waiting()


def figures(
    programs: Sequence[Program], findings: Sequence[Findings], minutes: float, interval_s: float
) -> dict[str, str]:
    """What the page says about a run."""
    refused: Counter[str] = Counter()
    for program in programs:
        for journal in program.journals:
            refused += journal.refusals()
    judged = {f.place: f.rows for f in findings}
    found = {
        "time": f"{minutes:.0f} minutes, a fault every {interval_s:.0f} s",
        "rows judged": ", ".join(f"{place} {rows}" for place, rows in judged.items()),
        "typed errors after which a program went on": ", ".join(
            f"{name} {count}" for name, count in sorted(refused.items())
        )
        or "none",
    }
    for program in programs:
        uses = program.uses()
        if uses:
            told = (f"{use.name} {use.before:.0f} → {use.after:.0f}" for use in uses)
            found[f"use of {program.name}, middle third → last"] = ", ".join(told).replace("_", " ")
    return found


@pytest.mark.timeout(2 * 3600)
def test_everything_at_once_under_one_fault_after_the_other(
    make_cluster: Callable[..., LocalCluster],
    make_lines: Callable[..., FaultyLines],
    tmp_path: Path,
    record_fault: FaultRecorder,
    fault_seed: int,
    long_form: bool,
) -> None:
    cluster = make_cluster(
        tablet_servers=SERVERS, lake="iceberg", tablet_heap="512m", config=CONFIG
    )
    address = cluster.up().bootstrap_servers
    lines = make_lines(address, fault_seed)
    places = Places(tmp_path, lines.bootstrap_servers, SERVERS)
    places.save()
    soak = Soak(cluster, lines, places)
    groups = [[role] for role in ROLES] if long_form else [ROLES[:3], ROLES[3:]]
    programs = [Program(tmp_path, roles) for roles in groups]
    minutes = float(os.environ.get(MINUTES_VARIABLE) or MINUTES) if long_form else 0.0
    with places.connect(address) as direct:
        create_tables(direct)
        faults = Faults(cluster, direct, lines, programs, fault_seed, short=not long_form)
        began = time.monotonic()
        with Sampler(programs, SAMPLE_EVERY_S):
            for program in programs:
                program.start()
            soak.go_on(programs)
            if long_form:
                for number, kind in enumerate(islice(faults, round(minutes * 60 / FAULT_EVERY_S))):
                    due = began + number * FAULT_EVERY_S
                    let_pass(max(0.0, due - time.monotonic()), "faults come at a rate")
                    faults.strike(kind)
                    soak.go_on(programs)
            else:
                for kind in SHORT:
                    faults.strike(kind)
                soak.go_on(programs)
        took_s = time.monotonic() - began
        # Those that read end first: a sensor waits for rows.
        ended = {program.name: program.end() for program in reversed(programs)}
        wrong = [w for p in programs for journal in p.journals for w in journal.wrongs()]
        assert not wrong, "\n".join(wrong)
        assert set(ended.values()) == {0}, ended
        judge = Judge(places, direct)
        judge.finish()
        findings = judge.findings()
    told = figures(programs, findings, took_s / 60, FAULT_EVERY_S)
    print("\n".join(map(str, findings)), told, sep="\n")
    record_fault(
        "soak of all parts on three servers",
        faults.struck.total(),
        lost=sum(len(found.lost) for found in findings),
        doubled=sum(len(found.doubled) for found in findings),
        hung=len(soak.hung),
        seed=fault_seed,
        stages=faults.struck,
        figures=told,
    )
    assert not soak.hung
    assert all(found.is_well for found in findings), "\n".join(map(str, findings))
    if long_form:
        growing = {p.name: [u for u in p.uses() if not u.is_flat] for p in programs}
        assert not any(growing.values()), growing
