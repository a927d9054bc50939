"""One Airflow for all of these tests: a home and a metadata database of this run's own.

Airflow reads its settings as it is imported, so they are set here, before any test module.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from fluss_client import Config, FlussConnection
from fluss_client.testing import LocalCluster
from tests.airflow_provider import capabilities
from tests.fix_either import own_database

HOME = Path(tempfile.mkdtemp(prefix="fluss-airflow-"))
SETTINGS = {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__CORE__FERNET_KEY": "",
    # Two tests may register different DAGs of one name within half a minute.
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    "AIRFLOW__OPENLINEAGE__DISABLED": "True",
    "AIRFLOW__FLUSS__POLL_INTERVAL": "0.2",
}
os.environ.update(SETTINGS)
(HOME / "dags").mkdir()


def pytest_unconfigure() -> None:
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    capabilities.choose(config, items)
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        # What Airflow and its libraries warn each other of is not ours to mend.
        for category in ("DeprecationWarning", "PendingDeprecationWarning", "ResourceWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{category}"))
        # Ours are: nothing here uses a name that was renamed.
        own = r"error:.* is deprecated\x3a use :DeprecationWarning"
        item.add_marker(pytest.mark.filterwarnings(own))
        item.add_marker(pytest.mark.filterwarnings("ignore::UserWarning:airflow"))
        item.add_marker(pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"))


@pytest.fixture(scope="session")
def airflow_home() -> Path:
    """The home, with a metadata database in it, and all imported that a run of a DAG needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from airflow.sdk import DAG, task
        from airflow.utils import db

        from tests.airflow_provider.running import run, states

        db.initdb()
        with DAG("first") as dag:
            task(lambda: None, task_id="nothing")()
        assert states(run(dag)) == {"nothing": "success"}
    return HOME


@pytest.fixture(scope="session")
def embedded_conn_id(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An Airflow connection to an embedded directory."""
    return add_connection("fluss_embedded", host=f"embedded:{tmp_path_factory.mktemp('fluss')}")


@pytest.fixture(scope="session")
def cluster_conn_id(plain_cluster: LocalCluster) -> str:
    """An Airflow connection to the real cluster, with SASL."""
    info = plain_cluster.info
    user, password = next(iter(info.users.items()))
    return add_connection(
        "fluss_cluster", host=str(info.sasl_bootstrap_servers), login=user, password=password
    )


@pytest.fixture(scope="session")
def conn_id(request: pytest.FixtureRequest, fluss_kind: str) -> str:
    """The connection of this test's kind."""
    found: str = request.getfixturevalue(f"{fluss_kind}_conn_id")
    return found


def add_connection(name: str, **value: str) -> str:
    """Add a Fluss connection to the environment, where Airflow looks first."""
    os.environ[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps({"conn_type": "fluss", **value})
    return name


@pytest.fixture(scope="session")
def client(conn_id: str) -> Iterator[FlussConnection]:
    """A client of the tests' own, beside those of the tasks."""
    from fluss_orchestrate.airflow.hooks import FlussHook

    config: Config = FlussHook(conn_id).get_config()
    with FlussConnection.create(config).result() as made:
        yield made


@pytest.fixture
def database(client: FlussConnection) -> Iterator[str]:
    """A database of this test's own, gone afterwards."""
    with own_database(client, "af") as name:
        yield name
