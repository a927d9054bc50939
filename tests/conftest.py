"""What every test gets: the topic plugins, the facts in the header, and the long forms."""

from __future__ import annotations

import importlib.metadata
import os
import platform

import hypothesis
import pytest

from fluss_client.testing.errors import JavaNotFoundError
from fluss_client.testing.jars import FLUSS_VERSION
from fluss_client.testing.java import find_java

pytest_plugins = [
    "tests.needs",  # first: others import it
    "tests.waiting",
    "tests.fix_cluster",
    "tests.fix_backend",
    "tests.fix_either",
    "tests.fix_support",
    "tests.fix_proxy",
    "tests.fix_storage",
    "tests.fix_postgres",
    "tests.docs.summary",
    "tests.faults.recording",
]

# A busy machine makes any example slow; every test has a timeout of its own.
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        action="store_true",
        default=os.environ.get("FLUSS_TEST_LONG", "") not in ("", "0"),
        help="run the long forms (also FLUSS_TEST_LONG=1)",
    )


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
