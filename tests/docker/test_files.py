"""The container files: valid, pinned, without root, and in step with what they start."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from fluss_client.testing.jars import FLUSS_VERSION
from fluss_orchestrate.airflow.hooks import config_of
from tests.docker.composed import (
    DOCKER,
    ROOT,
    dynamic_settings,
    example,
    server_settings,
    services,
    use_postgres,
    variables,
)

BIN = Path(sys.executable).parent
SERVICES = services()
ONCE = {"airflow-init"}
"""Services that do one thing and end."""


def _run(*command: str) -> None:
    ended = subprocess.run(
        [str(BIN / command[0]), *command[1:]], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_compose_file_fits_the_schema() -> None:
    _run(
        "check-jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(DOCKER / "compose.yaml"),
    )


def test_the_dockerfile_passes_the_linter() -> None:
    _run("hadolint", str(DOCKER / "Dockerfile"))


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_checked_and_not_root(name: str) -> None:
    service = SERVICES[name]
    image, _, tag = service["image"].partition(":")
    assert "build" in service or re.search(r"\d+\.\d+", tag), f"{image} is not pinned"
    user = int(service["user"].partition(":")[0])
    assert user > 0
    assert ("healthcheck" in service) != (name in ONCE)
    for needed, how in service.get("depends_on", {}).items():
        ends = needed in ONCE
        assert needed in SERVICES
        wanted = "service_completed_successfully" if ends else "service_healthy"
        assert how["condition"] == wanted
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), "open to this host only, unless told otherwise"


def test_every_variable_is_in_the_example_and_no_secret_has_a_default() -> None:
    assert variables().keys() == example().keys()
    for name, (kind, rest) in variables().items():
        secret = re.search(r"PASSWORD|SECRET|KEY", name)
        assert kind == ("?" if secret else "-"), name
        assert bool(example()[name]) == (not secret), name
        if not secret:
            assert rest == example()[name]


def test_commands_are_programs_of_the_image() -> None:
    for name, service in SERVICES.items():
        if service["image"].startswith("fluss-orchestrate/app"):
            assert os.access(BIN / service["command"][0], os.X_OK), name
            test = service.get("healthcheck", {}).get("test", ["CMD", "python"])
            assert (BIN / test[1]).exists(), name


def test_the_images_are_of_the_versions_that_the_tests_run() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    images = re.findall(r"^FROM (\S+) AS", text, re.MULTILINE)
    assert f"apache/fluss:{FLUSS_VERSION}" in images
    pythons = {image for image in images if image.startswith("python:")}
    assert len(pythons) == 1
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert pythons.pop().startswith(f"python:{running}.")
    folders = re.findall(r"python(\d\.\d+)/site-packages", text)
    assert set(folders) == {running}


def test_what_the_image_installs_is_what_the_tests_run() -> None:
    def pins(name: str) -> set[str]:
        text = (ROOT / "requirements" / name).read_text()
        return set(re.findall(r"^[\w.-]+(?:\[[\w,-]+\])?==\S+", text, re.MULTILINE))

    assert len(pins("image.txt")) > 100
    assert pins("image.txt") <= pins("dev.txt")


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    rules = (DOCKER / "Dockerfile.dockerignore").read_text().split()
    allowed = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    for line in re.findall(r"^COPY (?!--from)(.+)$", (DOCKER / "Dockerfile").read_text(), re.M):
        words = [word for word in line.split() if not word.startswith("--")]
        for source in words[:-1]:
            path = source.rstrip("/")
            assert (ROOT / path).exists(), source
            assert any(path == rule or fnmatch(path, f"{rule}/*") for rule in allowed), source


def test_fluss_servers_differ_where_they_must() -> None:
    common = server_settings()
    tablets = [name for name in SERVICES if name.startswith("tablet-")]
    assert len(tablets) == int(common["default.replication.factor"]) == 3
    for name in [*tablets, "coordinator"]:
        own = dynamic_settings(name)
        assert not own.keys() & common.keys()
        assert own["zookeeper.address"] == "zookeeper:2181"
        assert own["bind.listeners"] == own["advertised.listeners"]
        assert own["bind.listeners"] == f"INTERNAL://{name}:9124,FLUSS://{name}:9123"
        assert own.get("tablet-server.id") == (name[-1] if name in tablets else None)
        assert "lake:/lake" in SERVICES[name]["volumes"]


def test_airflow_knows_every_setting_and_the_connection() -> None:
    from airflow.configuration import conf
    from airflow.sdk import Connection

    environment = SERVICES["airflow-scheduler"]["environment"]
    for name in environment:
        if name.startswith("AIRFLOW__"):
            _, section, option = name.split("__", 2)
            known = conf.configuration_description[section.lower()]["options"]
            assert option.lower() in known, name
    given = json.loads(environment["AIRFLOW_CONN_FLUSS_DEFAULT"])
    given["extra"] = json.dumps(given["extra"])
    config = config_of(Connection(conn_id="fluss_default", **given))
    assert config.bootstrap_servers == "coordinator:9123"
    assert config.cluster_alias == environment["AIRFLOW__FLUSS__CLUSTER_ALIAS"]


def test_dagster_takes_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dagster._core.instance.config import dagster_instance_config

    for name, value in SERVICES["dagster-daemon"]["environment"].items():
        monkeypatch.setenv(name, value)
    shutil.copy(DOCKER / "dagster/dagster.yaml", tmp_path)
    config, _ = dagster_instance_config(str(tmp_path))
    database = config["storage"]["postgres"]["postgres_db"]
    assert database["hostname"] == {"env": "DAGSTER_DB_HOST"}
    workspace = yaml.safe_load((DOCKER / "dagster/workspace.yaml").read_text())
    server = workspace["load_from"][0]["grpc_server"]
    assert server["host"] in SERVICES
    assert f"--port={server['port']}" in SERVICES[server["host"]]["command"]


def test_dagster_opens_postgresql_with_the_drivers_of_the_image(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance of the compose file, with a real server in the place of `dagster-db`."""
    import dagster as dg

    shutil.copy(DOCKER / "dagster/dagster.yaml", tmp_path)
    database = use_postgres(tmp_path / "dagster.yaml", postgres_url)
    environment = SERVICES["dagster-daemon"]["environment"] | database
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.get_runs() == []
        instance.add_dynamic_partitions("days", ["20261116"])
        assert instance.get_dynamic_partitions("days") == ["20261116"]
    pins = (ROOT / "requirements/image.txt").read_text()
    assert re.search(r"^psycopg2-binary==", pins, re.MULTILINE)
