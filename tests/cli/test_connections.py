"""Which server a command talks to, and that no password is ever shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_client.testing import LocalCluster
from fluss_orchestrate.cli.connecting import Target
from tests.cli.running import Cli

SECRET = "open sesame"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "config")


def profiles(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config" / "fluss-orchestrate" / "profiles.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def names(cli: Cli, *options: str) -> list[str]:
    return [d["database"] for d in cli.json("databases", "ls", *options)]


def test_sources_and_their_order(cli: Cli, tmp_path: Path) -> None:
    assert "no address: give --bootstrap" in cli.fails("databases", "ls", code=2)
    for place in ("one", "two", "three"):
        cli("databases", "create", place, "--bootstrap", f"embedded:{tmp_path / place}")
    profiles(
        tmp_path,
        f'default = "two"\n[profiles.two]\n"bootstrap.servers" = "embedded:{tmp_path / "two"}"\n'
        f'[profiles.three]\n"bootstrap.servers" = "embedded:{tmp_path / "three"}"\n',
    )
    assert "two" in names(cli)
    assert "three" in names(cli, "--profile", "three")
    assert "one" in names(cli, "--profile", "three", "-b", f"embedded:{tmp_path / 'one'}")
    cli.env["FLUSS_PROFILE"] = "three"
    assert "three" in names(cli)
    cli.env["FLUSS_BOOTSTRAP_SERVERS"] = f"embedded:{tmp_path / 'one'}"
    assert "one" in names(cli)
    assert "two" in names(cli, "--profile", "two")
    assert "it has three, two" in cli.fails("databases", "ls", "--profile", "four", code=2)
    assert "leave --bootstrap" in cli.fails(
        "databases", "ls", "-b", "x:1", "--airflow-conn", "y", code=2
    )
    assert "unknown configuration key 'nope'" in cli.fails(
        "databases", "ls", "--client-option", "nope=1"
    )
    assert "no '='" in cli.fails("databases", "ls", "--client-option", "nope", code=2)
    profiles(tmp_path, "[profiles\n")
    assert "is no TOML" in cli.fails("databases", "ls", "--profile", "two")


def test_passwords_come_from_a_variable_or_a_private_file(cli: Cli, tmp_path: Path) -> None:
    start = '[profiles.p]\n"bootstrap.servers" = "127.0.0.1:1"\n'
    profiles(tmp_path, f'{start}"security.sasl.password" = "{SECRET}"\n')
    said = cli.fails("databases", "ls", "--profile", "p")
    assert "holds a password; name where it is" in said
    assert SECRET not in said
    profiles(tmp_path, f'{start}password_env = "SHOP_PASSWORD"\n')
    assert "takes its password from SHOP_PASSWORD" in cli.fails("databases", "ls", "--profile", "p")
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o644)
    profiles(tmp_path, f'{start}password_file = "{file}"\n')
    said = cli.fails("databases", "ls", "--profile", "p")
    assert "run chmod 600" in said
    assert SECRET not in said
    given = f"security.sasl.password={SECRET}"
    said = cli.fails("databases", "ls", "-b", "127.0.0.1:1", "--client-option", given, code=2)
    assert "would show the password" in said
    assert SECRET not in said


def test_a_profile_with_a_password_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    profiles(tmp_path, f'[profiles.p]\n"bootstrap.servers" = "x:1"\npassword_file = "{file}"\n')
    config = Target(profile="p").settings()
    assert config.security_sasl_password == SECRET
    assert SECRET not in repr(config)


def test_sasl_on_a_real_cluster(cli: Cli, plain_cluster: LocalCluster, tmp_path: Path) -> None:
    info = plain_cluster.info
    user, password = next(iter(info.users.items()))
    sasl = [
        "--client-option",
        "security.protocol=sasl",
        "--client-option",
        f"security.sasl.username={user}",
    ]
    command = ["databases", "ls", "-b", str(info.sasl_bootstrap_servers), *sasl]
    cli.env["FLUSS_SASL_PASSWORD"] = password
    assert "fluss" in [d["database"] for d in cli.json(*command)]
    cli.env["FLUSS_SASL_PASSWORD"] = "wrong"
    assert "wrong" not in cli.fails(*command).replace("wrong user", "")
    cli.env["FLUSS_SASL_PASSWORD"] = None
    assert "set security.sasl.password too" in cli.fails(*command)
    cli.env["FLUSS_CLUSTER_SHOP_SECURITY_SASL_PASSWORD"] = password
    assert cli.json(*command, "--client-option", "cluster.alias=shop")


def test_airflow_connections(tmp_path: Path, cli: Cli) -> None:
    # Airflow takes its time to load, so both questions go to one process.
    address = f"embedded:{tmp_path / 'fluss'}"
    cli("databases", "create", "flying", "-b", address)
    code = (
        "import json, sys\n"
        "from typer.testing import CliRunner\n"
        "from fluss_orchestrate.cli.app import app\n"
        "for name in ('shop', 'nobody'):\n"
        "    r = CliRunner().invoke(app, ['databases', 'ls', '--json', '--airflow-conn', name])\n"
        "    print(json.dumps([r.exit_code, r.stdout, r.stderr]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **{"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "AIRFLOW_HOME": str(tmp_path)},
            "AIRFLOW_CONN_SHOP": json.dumps({"conn_type": "fluss", "host": address}),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    found, missing = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    assert found[0] == 0, found
    assert "flying" in [d["database"] for d in json.loads(found[1])]
    assert missing[:2] == [1, ""]
    assert "Airflow gives no connection 'nobody'" in missing[2]
