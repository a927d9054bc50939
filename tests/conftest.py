"""What every test gets: the topic plugins, the facts in the header, and the long forms."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import signal
from types import FrameType

import hypothesis
import pytest
import pytest_timeout

from fluss_client.testing.errors import JavaNotFoundError
from fluss_client.testing.jars import FLUSS_VERSION
from fluss_client.testing.java import find_java
from tests.waiting import Deadline, scaled

pytest_plugins = [
    "tests.needs",  # first: others import it
    "tests.fix_cluster",
    "tests.fix_backend",
    "tests.fix_either",
    "tests.fix_support",
    "tests.fix_proxy",
    "tests.fix_storage",
    "tests.fix_postgres",
    "tests.fix_workers",
    "tests.docs.summary",
    "tests.faults.recording",
]

# A busy machine makes any example slow; every test has a timeout of its own.
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")

SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1"
"""Java's second compiler costs more than it saves within the minutes that servers of short forms
live: without it, a cluster starts and does its first work in two thirds of the CPU time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        action="store_true",
        default=os.environ.get("FLUSS_TEST_LONG", "") not in ("", "0"),
        help="run the long forms (also FLUSS_TEST_LONG=1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    set_before = os.environ.get("JAVA_TOOL_OPTIONS", "")
    if not config.getoption("--long") and SHORT_LIVED_JAVA not in set_before:
        os.environ["JAVA_TOOL_OPTIONS"] = f"{set_before} {SHORT_LIVED_JAVA}".strip()


def pytest_report_header() -> list[str]:
    try:
        runtime = find_java()
        java = f"{runtime.version} ({runtime.home})"
    except JavaNotFoundError:
        java = "none"
    packages = " ".join(
        f"{name}-{importlib.metadata.version(name)}" for name in ("pyarrow", "protobuf", "numpy")
    )
    return [
        f"python {platform.python_version()}, {packages}",
        f"Java {java}, Fluss server {FLUSS_VERSION}",
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    """Stretch the limit of a whole test with the load of the machine, as limits of waits are."""
    if settings.method != "signal":
        settings = settings._replace(timeout=scaled(settings.timeout))
        pytest_timeout.pytest_timeout_set_timer(item, settings)
        return True
    limit = Deadline(settings.timeout)
    pytest_timeout.pytest_timeout_set_timer(item, settings)
    fail = signal.getsignal(signal.SIGALRM)
    assert callable(fail)

    def look_again(signum: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        if limit.has_passed:
            fail(signum, frame)
        else:
            signal.setitimer(signal.ITIMER_REAL, max(limit.left_s, 0.1))

    signal.signal(signal.SIGALRM, look_again)
    return True


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        for item in items:
            if "long_form" in getattr(item, "fixturenames", ()):
                item.add_marker("long")
        return
    long_ones = [item for item in items if item.get_closest_marker("long")]
    if long_ones:
        config.hook.pytest_deselected(items=long_ones)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture(scope="session")
def long_form(pytestconfig: pytest.Config) -> bool:
    """Whether the sizes of the issues are wanted, rather than the small ones of `make test`."""
    return bool(pytestconfig.getoption("--long"))
