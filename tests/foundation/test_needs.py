"""What a machine lacks is told once, with the one command that brings it."""

from __future__ import annotations

from fluss_client.testing.errors import JavaNotFoundError
from tests.needs import lines_of


def test_one_command_brings_everything() -> None:
    java = str(JavaNotFoundError("no Java: apt-get install openjdk-17-jre-headless) and so on"))
    reasons = {
        "a PostgreSQL server (to install it: apt-get install postgresql)": 3,
        "Chromium (to install it: apt-get install chromium)": 1,
        java: 2,
    }
    *each, command = lines_of(reasons)
    assert len(each) == 3
    assert any(line.startswith("1 test needs Chromium") for line in each)
    assert command == (
        "to run them all: apt-get install chromium openjdk-17-jre-headless postgresql"
    )


def test_nothing_is_told_where_debian_has_no_package() -> None:
    assert lines_of({"the official client (pyfluss 1.0.0)": 2}) == [
        "2 tests need the official client (pyfluss 1.0.0)"
    ]
