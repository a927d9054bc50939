"""Every call of the client while its line fails: a right answer or a typed error, never a hang."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from fluss_client.testing import LocalCluster
from tests.faults.ground import CALLS, Call, Ground
from tests.faults.recording import FaultRecorder
from tests.faults.striking import Striker
from tests.fix_proxy import KINDS, FaultyLines

AT_ONCE = 6
CALLS_SHORT = 12
ROUNDS_LONG = 5

IN_ANSWERS = [(kind, False) for kind in KINDS]
# A request that is damaged or sent twice would be another one; writers, whose batches carry sums
# and numbers, have tests of their own.
IN_REQUESTS = [(kind, True) for kind in KINDS if kind not in ("corrupt", "duplicate", "reorder")]


def chosen(long_form: bool, seed: int, kind: str, in_request: bool) -> list[Call]:
    """All calls many times in the long form; otherwise some, others for each fault."""
    if long_form:
        return CALLS * ROUNDS_LONG
    return random.Random(f"{seed}{kind}{in_request}").sample(CALLS, CALLS_SHORT)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("kind", "in_request"), [*IN_ANSWERS, *IN_REQUESTS])
def test_every_call_on_a_line_that_fails(
    kind: str,
    in_request: bool,
    ground: Ground,
    plain_cluster: LocalCluster,
    make_lines: Callable[..., FaultyLines],
    record_fault: FaultRecorder,
    fault_seed: int,
    long_form: bool,
) -> None:
    calls = chosen(long_form, fault_seed, kind, in_request)
    wrong: list[str] = []
    hung = struck = 0

    def work(number: int) -> None:
        nonlocal hung, struck
        lines = make_lines(plain_cluster.info.bootstrap_servers, fault_seed + number)
        striker = Striker(ground, lines)
        for call in calls[number::AT_ONCE]:
            found = striker.strike(call, kind, in_request)
            hung += found.hung
            verdict = striker.verdict(call, kind, found)
            if verdict:
                wrong.append(f"{call.name} under {kind}: {verdict} after {found.seconds:.1f} s")
        striker.close()
        struck += lines.struck.total()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(work, number) for number in range(AT_ONCE)]:
            done.result()
    where = "request" if in_request else "answer"
    assert struck >= len(calls), "each call meets its fault at least once"
    record_fault(f"line: {kind} in the {where}", struck, hung=hung, seed=fault_seed)
    assert wrong == []
