"""Tests wait in one way: `tests/waiting.py` knows how busy the machine is."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import SLOWEST, Deadline, moment_between, scaled, wait_until

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent

# Files that wait by themselves, and why.
EXCEPTIONS = {
    "waiting.py": "it is the one place",
    "upgrade/make_golden.py": "runs with the code of an earlier version",
    "airflow_provider/service_dags.py": "Airflow's processes load it, and find no tests",
    "typing/consumer.py": "a program of a user, which a type checker reads",
}
SLEEPS = {"time.sleep", "asyncio.sleep", "sleep", "anyio.sleep"}
CLOCKS = {"time.monotonic", "time.perf_counter", "time.time", "monotonic", "perf_counter"}
# Calls that end with an error, or with nothing, after so many seconds.
LIMITED = {"wait", "join", "result", "exception", "communicate", "get", "acquire", "call"}
LIMITED |= {"run", "check_output", "check_call", "wait_for", "timeout", "wait_procs", "urlopen"}
LIMITED |= {"Barrier", "Client", "AsyncClient", "put"}
# Clients that give up after a few seconds unless they are told how long to wait.
IMPATIENT = {f"httpx.{name}" for name in ("Client", "AsyncClient", "get", "post", "request")}
# So short a limit is meant to pass: a call that is given up, or a look.
MEANT_TO_PASS_S = 0.5


def hand_made_waits(source: str) -> Iterator[tuple[int, str]]:
    """The line of each wait that does not come from `tests/waiting.py`, with what is wrong."""
    nodes = list(ast.walk(ast.parse(source)))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    patient = {id(word) for call in calls if _method(call) == "patient" for word in call.args}
    for call in calls:
        yield from _of_call(call)
        if _method(call) == "new_page" and id(call) not in patient:
            yield call.lineno, "a page gives up after 30 s: use patient"
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            if any(_is_clock(side) for side in (node.left, node.right)):
                yield node.lineno, "a deadline of its own: use wait_until or Deadline"
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for at, order in enumerate(node.ops):
                earlier, later = sides[at : at + 2]
                if isinstance(order, (ast.Gt, ast.GtE)):
                    earlier, later = later, earlier
                if _reads_clock(earlier) and not _is_scaled(later):
                    yield node.lineno, "an upper bound of time: count what is meant, or use scaled"


def _method(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _of_call(call: ast.Call) -> Iterator[tuple[int, str]]:
    name = ast.unparse(call.func)
    if name in SLEEPS and not (call.args and ast.unparse(call.args[0]) == "0"):
        yield call.lineno, "sleeps: use wait_until, or let_pass if time itself is meant"
    if name in IMPATIENT and not any(word.arg == "timeout" for word in call.keywords):
        yield call.lineno, "gives up after 5 s: say timeout=None"
    method = _method(call)
    if method not in LIMITED or name == "pytest.mark.timeout":
        return
    limits = [word.value for word in call.keywords if word.arg in ("timeout", "timeout_s")]
    if method in ("wait", "join", "result", "exception", "timeout"):
        limits += call.args[:1]
    elif method in ("wait_for", "call"):
        limits += call.args[1:2]
    for limit in limits:
        value = limit.value if isinstance(limit, ast.Constant) else None
        if isinstance(value, (int, float)) and value > MEANT_TO_PASS_S:
            yield call.lineno, "a limit of its own: use none (the test has one), or scaled"


def _is_clock(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in CLOCKS - {"time.time"}


def _reads_clock(node: ast.expr) -> bool:
    return any(_is_clock(part) for part in ast.walk(node) if isinstance(part, ast.expr))


def _is_scaled(node: ast.expr) -> bool:
    return "scaled(" in ast.unparse(node)


def test_tests_wait_in_one_way() -> None:
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        name = path.relative_to(TESTS).as_posix()
        if name not in EXCEPTIONS:
            waits = sorted(hand_made_waits(path.read_text()))
            found += [f"tests/{name}:{line}: {what}" for line, what in waits]
    assert not found, "\n".join(found)


def test_every_exception_is_needed() -> None:
    for name in EXCEPTIONS:
        assert list(hand_made_waits((TESTS / name).read_text())), f"{name} needs no exception"


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("time.sleep(1)", True),
        ("await asyncio.sleep(0.1)", True),
        ("await asyncio.sleep(0)", False),
        ("end = time.monotonic() + 30", True),
        ("assert time.monotonic() - began < 10", True),
        ("assert 10 > time.monotonic() - began", True),
        ("assert time.monotonic() - began < scaled(10)", False),
        ("assert time.monotonic() - began >= 0.2", False),
        ("took_s = time.monotonic() - began", False),
        ("thread.join(20)", True),
        ("thread.join()", False),
        ("','.join(names)", False),
        ("process.communicate(timeout=60)", True),
        ("process.wait(scaled(60))", False),
        ("await asyncio.wait_for(call, 0.01)", False),
        ("await asyncio.wait_for(call, 5)", True),
        ("httpx.get(url)", True),
        ("httpx.get(url, timeout=None)", False),
        ("page = browser.new_page()", True),
        ("page = patient(browser.new_page())", False),
    ],
)
def test_what_is_found(source: str, is_found: bool) -> None:
    assert any(hand_made_waits(f"async def test():\n    {source}\n")) is is_found


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many threads per core want to run, as the machine says."""
    per_core = [0.0]
    cores = os.cpu_count() or 1
    monkeypatch.setattr(os, "getloadavg", lambda: (per_core[0] * cores, 0.0, 0.0))
    return per_core


def test_limits_follow_the_load(load: list[float]) -> None:
    assert scaled(10) == 10
    load[0] = 3
    assert scaled(10) == 30
    load[0] = 100
    assert scaled(10) == 10 * SLOWEST


def test_a_wait_that_began_before_the_load_came_is_stretched(load: list[float]) -> None:
    deadline = Deadline(0.05)
    wait_until("the end", lambda: deadline.has_passed, 10)
    load[0] = SLOWEST
    late = Deadline(0)
    assert late.has_passed, "no time is no time, whatever the load"
    assert Deadline(60).left_s > 60 * (SLOWEST - 1)


def test_a_wait_says_what_did_not_come() -> None:
    with pytest.raises(AssertionError, match=r"(?s)the snapshot: waited .* s .*\nlast words"):
        wait_until("the snapshot", lambda: None, 0.01, details=lambda: "last words")


def test_a_moment_is_between_what_was_and_what_comes() -> None:
    for _ in range(20):
        before_ms = time.time_ns() // 1_000_000
        moment_ms = moment_between()
        assert before_ms < moment_ms < time.time_ns() // 1_000_000


LIMITED_TEST = """
import os, time
import pytest

PER_CORE = {per_core}
os.getloadavg = lambda: (PER_CORE * os.cpu_count(), 0.0, 0.0)

@pytest.mark.timeout(0.5)
def test_it():
    ends = time.monotonic() + 1
    while time.monotonic() < ends:
        time.sleep(0.01)
"""


@pytest.mark.parametrize(("per_core", "code"), [(1, 1), (4, 0)])
def test_the_limit_of_a_whole_test_follows_the_load(
    per_core: int, code: int, tmp_path: Path
) -> None:
    module = tmp_path / "test_it.py"
    module.write_text(LIMITED_TEST.format(per_core=per_core))
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml")]
    command += ["--rootdir", str(ROOT), "-p", "no:cacheprovider", "-p", "tests.conftest"]
    done = subprocess.run([*command, str(module)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("Timeout (>0.5s)" in done.stdout) is (code == 1)
