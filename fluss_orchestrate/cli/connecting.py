"""Which server a command talks to: `--bootstrap`, a profile, an Airflow connection, a variable.

What is said on the command line wins over the environment, and that over the default profile.
Sources are not mixed, so that a password never goes to a server that it was not meant for; only
`--bootstrap` and `--client-option` add to a profile that is named beside them.

Profiles are named connections in the user's configuration directory:

    # ~/.config/fluss-orchestrate/profiles.toml
    default = "laptop"

    [profiles.laptop]
    "bootstrap.servers" = "embedded:~/fluss"

    [profiles.production]
    "bootstrap.servers" = "fluss-1:9123,fluss-2:9123"
    "cluster.alias" = "production"
    "security.protocol" = "sasl"
    "security.sasl.username" = "etl"
    password_file = "~/.config/fluss-orchestrate/production.password"

A password never stands in this file: `password_env` names an environment variable that holds it,
`password_file` a file that nobody else may read.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.cli.presentation.failures import CommandError, UsageError, one_line

if TYPE_CHECKING:
    from fluss_client import Config, FlussConnection


PROFILE_VARIABLE = "FLUSS_PROFILE"
PASSWORD_KEY = "security.sasl.password"  # noqa: S105 (the name of the key)
_PASSWORD_PLACES = ("password_env", "password_file")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def profiles_path() -> Path:
    """Return the path of the profiles; the file may not exist."""
    # The XDG rules say that a relative value is to be ignored.
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return folder / "fluss-orchestrate" / "profiles.toml"


def load_profile(name: str | None) -> dict[str, str] | None:
    """Return the configuration keys of a profile, with its password.

    Without a name: the profile that `FLUSS_PROFILE` or the `default` of the file names; None if
    there is none.
    """
    path = profiles_path()
    wanted = name or os.environ.get(PROFILE_VARIABLE, "").strip() or None
    if not path.is_file():
        if wanted is not None:
            raise UsageError(f"there is no profile '{wanted}': {path} does not exist")
        return None
    document = _read(path)
    wanted = wanted or document.get("default")
    if wanted is None:
        return None
    profiles = document.get("profiles", {})
    found = profiles.get(wanted) if isinstance(profiles, Mapping) else None
    if not isinstance(found, Mapping):
        known = ", ".join(sorted(profiles)) if isinstance(profiles, Mapping) else ""
        raise UsageError(f"{path} has no profile '{wanted}'; it has {known or 'none'}")
    return _settings(path, str(wanted), found)


def profile_names() -> list[str]:
    """Return the names in the file, for completion and for `doctor`."""
    path = profiles_path()
    profiles = _read(path).get("profiles", {}) if path.is_file() else {}
    return sorted(profiles) if isinstance(profiles, Mapping) else []


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} is no TOML: {error}") from None


def _settings(path: Path, name: str, found: Mapping[str, Any]) -> dict[str, str]:
    places = {key: found[key] for key in _PASSWORD_PLACES if key in found}
    settings = {key: _text(value) for key, value in found.items() if key not in places}
    if any(is_password(key) for key in settings):
        raise CommandError(
            f"{path}: profile '{name}' holds a password; name where it is instead, with "
            "password_env (a variable) or password_file (a file of mode 0600)"
        )
    if "password_env" in places:
        variable = str(places["password_env"])
        if variable not in os.environ:
            raise CommandError(f"profile '{name}' takes its password from {variable}: set it")
        settings[PASSWORD_KEY] = os.environ[variable]
    elif places:
        settings[PASSWORD_KEY] = read_password(Path(str(places["password_file"])).expanduser())
    return settings


def read_password(path: Path) -> str:
    """Return the password in a file that only its owner may read."""
    mode = path.stat().st_mode
    if mode & _OTHERS:
        raise CommandError(
            f"{path} may be read by others (mode {stat.S_IMODE(mode):04o}): run chmod 600 on it"
        )
    return path.read_text().rstrip("\r\n")


def is_password(key: str) -> bool:
    """Return whether a configuration key, in any spelling, is a secret."""
    return key.strip().lower().endswith("password")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    client_options: Sequence[str] = ()

    def settings(self) -> Config:
        """Return the client's configuration.

        Raises:
            UsageError: There is no address.
        """
        from fluss_client import Config

        given = key_values(self.client_options, "--client-option")
        for key in given:
            if is_password(key):
                raise UsageError(
                    f"--client-option {key} would show the password to everybody on this machine: "
                    f"set {PASSWORD_VARIABLE} or {PASSWORD_FILE_VARIABLE}, or use a profile"
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
    """Return a connection to the server that the options name."""
    from fluss_client import FlussConnection

    return FlussConnection.create(target.settings()).result(CONNECT_TIMEOUT_S)


def of_airflow(connection_id: str) -> Config:
    """Return the configuration of an Airflow connection. Only this function imports Airflow."""
    from fluss_client.errors import FlussError
    from fluss_orchestrate.core.clusters import scheduler_config

    try:
        return scheduler_config("airflow", connection_id)
    except FlussError:
        raise
    except Exception as error:
        raise CommandError(
            f"Airflow gives no connection '{connection_id}': {one_line(str(error))}"
        ) from error


def key_values(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Return `KEY=VALUE` texts as a mapping."""
    found = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"{option} '{pair}' has no '=': give KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def _password_of_environment(config: Config) -> str:
    """Return the password of this run, or the one for the cluster's alias."""
    from fluss_orchestrate.core.clusters import ClusterRef

    if PASSWORD_VARIABLE in os.environ:
        return os.environ[PASSWORD_VARIABLE]
    path = os.environ.get(PASSWORD_FILE_VARIABLE)
    if path is not None:
        return read_password(Path(path).expanduser())
    return str(ClusterRef.of(config).config().security_sasl_password)


def _attribute(key: str) -> str:
    from fluss_client.engine import find_option

    return find_option(key).name
