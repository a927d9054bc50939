"""Which pages need a real cluster, and a home for Airflow."""

from __future__ import annotations

import os

import pytest

from tests.docs.pages import page_paths, read_page
from tests.leftovers import no_process_is_left  # noqa: F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        spec = getattr(item, "callspec", None)
        path = None if spec is None else spec.params.get("path")
        if path in page_paths() and "cluster" in (read_page(path).setup or ""):
            item.add_marker("cluster")
            # Named openly, so that its start does not count against the test's own time.
            item.fixturenames.insert(0, "plain_cluster")  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Airflow makes itself a home as it is imported; not in the user's."""
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))
