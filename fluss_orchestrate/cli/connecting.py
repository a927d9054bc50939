"""Which server a command talks to: `--bootstrap`, a profile, an Airflow connection, a variable.

What is said on the command line wins over the environment, and that over the default profile.
Sources are not mixed, so that a password never goes to a server that it was not meant for; only
`--bootstrap` and `--config` add to a profile that is named beside them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fluss_orchestrate.cli.failures import CommandError, UsageError, one_line
from fluss_orchestrate.cli.profiles import (
    PROFILE_VARIABLE,
    is_password,
    load_profile,
    profiles_path,
    read_password,
)

if TYPE_CHECKING:
    from fluss_client import Config, FlussConnection

BOOTSTRAP_VARIABLE = "FLUSS_BOOTSTRAP_SERVERS"
PASSWORD_VARIABLE = "FLUSS_SASL_PASSWORD"  # noqa: S105 (the name of the variable)
PASSWORD_FILE_VARIABLE = "FLUSS_SASL_PASSWORD_FILE"  # noqa: S105 (the name of the variable)
CONNECT_TIMEOUT_S = 150.0


@dataclass(frozen=True)
class Target:
    """What the options of a command say about the server."""

    bootstrap: str | None = None
    profile: str | None = None
    airflow_conn: str | None = None
    config: Sequence[str] = ()

    def settings(self) -> Config:
        """The client's configuration; `UsageError` when there is no address."""
        from fluss_client import Config

        given = key_values(self.config, "--config")
        for key in given:
            if is_password(key):
                raise UsageError(
                    f"--config {key} would show the password to everybody on this machine: set "
                    f"{PASSWORD_VARIABLE} or {PASSWORD_FILE_VARIABLE}, or use a profile"
                )
        if self.airflow_conn is not None:
            if self.bootstrap is not None or self.profile is not None:
                raise UsageError("--airflow-conn says it all: leave --bootstrap and --profile out")
            config = of_airflow(self.airflow_conn)
            for key, value in given.items():
                setattr(config, _attribute(key), value)
            return config
        values = {**self._source(), **given}
        config = Config(values)
        if config.security_protocol == "sasl" and not config.security_sasl_password:
            config.security_sasl_password = _password_of_environment(config)
        return config

    def _source(self) -> dict[str, str]:
        if self.profile is not None:
            named = load_profile(self.profile) or {}
            return (
                named if self.bootstrap is None else {**named, "bootstrap.servers": self.bootstrap}
            )
        address = self.bootstrap or os.environ.get(BOOTSTRAP_VARIABLE, "").strip()
        if address:
            return {"bootstrap.servers": address}
        chosen = load_profile(None)
        if chosen is None:
            raise UsageError(
                "no address: give --bootstrap host:port[,host:port] for a cluster or "
                f"--bootstrap embedded:PATH for a local directory, or set {BOOTSTRAP_VARIABLE} or "
                f"{PROFILE_VARIABLE}, or name a default profile in {profiles_path()}"
            )
        return chosen


def connect(target: Target) -> FlussConnection:
    """A connection to the server that the options name."""
    from fluss_client import FlussConnection

    return FlussConnection.create(target.settings()).result(CONNECT_TIMEOUT_S)


def of_airflow(connection_id: str) -> Config:
    """The configuration of an Airflow connection; only here is Airflow imported."""
    from fluss_client.errors import FlussError, MissingExtraError

    try:
        from fluss_orchestrate.airflow import FlussHook
    except ImportError:
        raise MissingExtraError("apache-airflow", "airflow") from None
    try:
        return FlussHook(connection_id).get_config()
    except FlussError:
        raise
    except Exception as error:
        raise CommandError(
            f"Airflow gives no connection '{connection_id}': {one_line(str(error))}"
        ) from error


def key_values(pairs: Sequence[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping."""
    found = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"{option} '{pair}' has no '=': give KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def _password_of_environment(config: Config) -> str:
    """The password of this run, or the one that is kept for the cluster's alias."""
    from fluss_orchestrate.core.clusters import ClusterRef

    if PASSWORD_VARIABLE in os.environ:
        return os.environ[PASSWORD_VARIABLE]
    path = os.environ.get(PASSWORD_FILE_VARIABLE)
    if path is not None:
        return read_password(Path(path).expanduser())
    return str(ClusterRef.of(config).config().security_sasl_password)


def _attribute(key: str) -> str:
    from fluss_client.config import find_option

    return find_option(key).name
