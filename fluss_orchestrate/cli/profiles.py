"""Named connections in the user's configuration directory.

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fluss_orchestrate.cli.failures import CommandError, UsageError

PROFILE_VARIABLE = "FLUSS_PROFILE"
PASSWORD_KEY = "security.sasl.password"  # noqa: S105 (the name of the key)
_PASSWORD_PLACES = ("password_env", "password_file")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def profiles_path() -> Path:
    """Where the profiles are; the file may not exist."""
    # The XDG rules say that a relative value is to be ignored.
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return folder / "fluss-orchestrate" / "profiles.toml"


def load_profile(name: str | None) -> dict[str, str] | None:
    """The configuration keys of a profile, its password included.

    Without a name: the one that `FLUSS_PROFILE` or the file's `default` names; None if neither
    does.
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
    """The names in the file, for completion and for `doctor`."""
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
    """The password in a file that only its owner may read."""
    mode = path.stat().st_mode
    if mode & _OTHERS:
        raise CommandError(
            f"{path} may be read by others (mode {stat.S_IMODE(mode):04o}): run chmod 600 on it"
        )
    return path.read_text().rstrip("\r\n")


def is_password(key: str) -> bool:
    """Whether a configuration key, in any spelling, holds a secret."""
    return key.strip().lower().endswith("password")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
