"""The compose file as values, with `.env.example` filled in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def raw_text() -> str:
    """The compose file as it stands."""
    return (DOCKER / "compose.yaml").read_text()


def variables() -> dict[str, tuple[str, str]]:
    """Every variable that the compose file asks for: `?` or `-`, and what stands after it."""
    return {name: (kind, rest) for name, kind, rest in _VARIABLE.findall(raw_text())}


def example() -> dict[str, str]:
    """The variables of `.env.example`."""
    lines = (DOCKER / ".env.example").read_text().splitlines()
    pairs = [line.partition("=") for line in lines if line.strip() and not line.startswith("#")]
    return {name: value for name, _, value in pairs}


def services() -> dict[str, dict[str, Any]]:
    """The services, with a word of its own in the place of each empty variable."""
    words = {name: value or f"word-of-{name.lower()}" for name, value in example().items()}
    text = _VARIABLE.sub(lambda match: words[match.group(1)], raw_text())
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    return found


def server_settings() -> dict[str, str]:
    """The settings of all Fluss servers."""
    values = yaml.safe_load((DOCKER / "fluss/server.yaml").read_text())
    return {key: str(value) for key, value in values.items()}


def dynamic_settings(service: str) -> dict[str, str]:
    """What a Fluss server is given as `-D key=value`, two words each."""
    words = services()[service]["command"]
    assert set(words[::2]) == {"-D"}
    return dict(word.split("=", 1) for word in words[1::2])


def use_postgres(dagster_yaml: Path, url: str) -> dict[str, str]:
    """Point a copy of Dagster's settings at a server of this machine; the variables it wants."""
    server = urlsplit(url)
    text = dagster_yaml.read_text()
    assert "port: 5432" in text
    dagster_yaml.write_text(text.replace("port: 5432", f"port: {server.port}"))
    return {
        "DAGSTER_DB_HOST": str(server.hostname),
        "DAGSTER_DB_USER": str(server.username),
        "DAGSTER_DB_NAME": server.path.removeprefix("/"),
    }
