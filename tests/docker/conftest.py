"""A home for Airflow."""

from __future__ import annotations

import os

import pytest

from tests.leftovers import no_process_is_left  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Airflow makes itself a home as it is imported; not in the user's."""
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))
