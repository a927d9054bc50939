"""What the compose file starts, started natively from the same files."""

from __future__ import annotations

import json
import shutil
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from urllib.error import URLError

import pytest
import yaml

import fluss_client as fluss
from fluss_client.testing import LocalCluster, find_java
from fluss_client.testing.artifacts import ensure_jars
from fluss_client.testing.jars import SERVER_JARS
from fluss_client.testing.launching import pick
from fluss_client.testing.processes import spawn
from tests.docker.composed import (
    DOCKER,
    ROOT,
    dynamic_settings,
    server_settings,
    services,
    use_postgres,
)
from tests.docker.native import run, started, wait_ready
from tests.waiting import scaled

SERVICES = services()
# Where things lie, and what a server is called, is this machine's own.
_PLACES = ("data.dir", "remote.data", "datalake.", "internal.", "security.", "zookeeper.")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def _get(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=scaled(5)) as answer:
            return bytes(answer.read())
    except (URLError, OSError):
        return None


def test_fluss_servers(server_jars: None, tmp_path: Path) -> None:
    settings = {k: v for k, v in server_settings().items() if not k.startswith(_PLACES)}
    with LocalCluster(tmp_path / "c", tablet_servers=3, lake="iceberg", config=settings) as cluster:
        config = fluss.Config({"bootstrap.servers": cluster.info.bootstrap_servers})
        with fluss.FlussConnection.create(config).result() as connection:
            admin = connection.get_admin().result()
            path = fluss.TablePath("fluss", "three")
            schema = fluss.Schema(fluss_schema())
            admin.create_table(path, fluss.TableDescriptor(schema)).result()
            info = admin.get_table_info(path).result()
            assert info.num_buckets == int(settings["default.bucket.number"])
            assert info.properties["table.replication.factor"] == "3"
            with connection.get_table(path).result().new_append().create_writer() as writer:
                writer.append({"id": 1})
            _one_more_tablet(cluster, admin, tmp_path)


def fluss_schema() -> object:
    import pyarrow as pa

    return pa.schema([("id", pa.int64())])


def _one_more_tablet(cluster: LocalCluster, admin: fluss.FlussAdmin, folder: Path) -> None:
    """A tablet server from docker/fluss itself, with `-D` words as in the compose file."""
    conf = cluster.directory / "conf" / "coordinator" / "server.yaml"
    running = yaml.safe_load(conf.read_text())
    taken: set[int] = set()
    listeners = f"INTERNAL://127.0.0.1:{pick(taken)},FLUSS://127.0.0.1:{pick(taken)}"
    own = dynamic_settings("tablet-1") | {
        "zookeeper.address": running["zookeeper.address"],
        "tablet-server.id": "4",
        "bind.listeners": listeners,
        "advertised.listeners": listeners,
        "data.dir": str(folder / "tablet-4"),
        "remote.data.dir": running["remote.data.dir"],
        "datalake.iceberg.uri": running["datalake.iceberg.uri"],
        "datalake.iceberg.warehouse": running["datalake.iceberg.warehouse"],
    }
    words = [word for key, value in own.items() for word in ("-D", f"{key}={value}")]
    java = find_java()
    jars = ":".join(map(str, ensure_jars(SERVER_JARS, java)))
    log4j = conf.with_name("log4j2.properties")
    command = java.command(
        "-Xmx512m",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        f"-Dlog4j.configurationFile={log4j}",
        *("-cp", jars, "org.apache.fluss.server.tablet.TabletServer"),
        *("--configDir", str(DOCKER / "fluss"), *words),
    )
    work = cluster.directory / "work" / "coordinator"
    log = folder / "tablet-4.log"
    process = spawn(command, work, log)
    try:
        wait_ready(
            "a fourth tablet server",
            lambda: any(n.id == 4 for n in admin.get_server_nodes().result()),
            [log],
        )
    finally:
        process.terminate("tablet-4")


def test_dagster(postgres_url: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(DOCKER / "dagster", home)
    database = use_postgres(home / "dagster.yaml", postgres_url)
    taken: set[int] = set()
    grpc, web = str(pick(taken)), str(pick(taken))
    workspace = (home / "workspace.yaml").read_text()
    workspace = workspace.replace("dagster-code", "127.0.0.1").replace("4000", grpc)
    (home / "workspace.yaml").write_text(workspace)
    environment = dict(SERVICES["dagster-daemon"]["environment"])
    environment |= database | {
        "DAGSTER_HOME": str(home),
        "FLUSS_BOOTSTRAP_SERVERS": f"embedded:{tmp_path / 'fluss'}",
        "SHOP_HOME": str(tmp_path / "shop"),
    }
    changes = {
        "--host=0.0.0.0": "--host=127.0.0.1",
        "--port=4000": f"--port={grpc}",
        "4000": grpc,
        "--port=3000": f"--port={web}",
        "/opt/dags": str(ROOT / "dags"),
        "/opt/dagster": str(home),
    }

    def native(words: list[str]) -> list[str]:
        found = [changes.get(word, word) for word in words]
        return [w.replace("/opt/dags/", f"{changes['/opt/dags']}/") for w in found]

    with ExitStack() as stack:
        logs = []
        for name in ("dagster-code", "dagster-webserver", "dagster-daemon"):
            command = [
                w.replace("/opt/dagster/", f"{home}/") for w in native(SERVICES[name]["command"])
            ]
            logs.append(stack.enter_context(started(name, command, environment, tmp_path)))
            if name == "dagster-code":
                check = native(SERVICES[name]["healthcheck"]["test"][1:])
                wait_ready("the code server", lambda c=check: _well(c, environment, tmp_path), logs)  # type: ignore[misc]
        server = f"http://127.0.0.1:{web}"
        wait_ready("the webserver", lambda: _get(f"{server}/server_info") is not None, logs)
        assert "dagster_version" in json.loads(_get(f"{server}/server_info") or b"{}")
        check = SERVICES["dagster-daemon"]["healthcheck"]["test"][1:]
        wait_ready("the daemon", lambda: _well(check, environment, tmp_path), logs)


def _well(command: list[str], environment: dict[str, str], folder: Path) -> bool:
    try:
        run(command, environment, folder)
    except AssertionError:
        return False
    return True


def test_airflow(tmp_path: Path) -> None:
    port = str(pick(set()))
    environment = dict(SERVICES["airflow-scheduler"]["environment"])
    from cryptography.fernet import Fernet

    environment |= {
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags/airflow"),
        "AIRFLOW__CORE__FERNET_KEY": Fernet.generate_key().decode(),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(tmp_path / "passwords.json"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(tmp_path / "logs"),
        "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(
            {"conn_type": "fluss", "host": f"embedded:{tmp_path / 'fluss'}"}
        ),
        "SHOP_OUTPUT": str(tmp_path / "shop"),
    }
    run(SERVICES["airflow-init"]["command"], environment, tmp_path)
    own = {
        "airflow-api-server": ["--host", "127.0.0.1", "--workers", "1"],
        "airflow-scheduler": ["--skip-serve-logs"],
        "airflow-dag-processor": [],
        "airflow-triggerer": ["--skip-serve-logs"],
    }
    with ExitStack() as stack:
        logs = []
        for name, words in own.items():
            command = [port if w == "8080" else w for w in SERVICES[name]["command"]]
            logs.append(
                stack.enter_context(started(name, [*command, *words], environment, tmp_path))
            )
        url = SERVICES["airflow-api-server"]["healthcheck"]["test"][-1].split('"')[1]

        def healthy() -> bool:
            answer = _get(url.replace(":8080", f":{port}"))
            parts = json.loads(answer) if answer else {}
            wanted = ("metadatabase", "scheduler", "triggerer", "dag_processor")
            return all(parts.get(part, {}).get("status") == "healthy" for part in wanted)

        wait_ready("Airflow", healthy, logs)
        for name in ("airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"):
            run(SERVICES[name]["healthcheck"]["test"][1:], environment, tmp_path)
