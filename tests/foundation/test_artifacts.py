"""The cache of jars: what is in it is what was pinned, or nobody gets it."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fluss_client.testing import JavaRuntime, artifacts, find_java
from fluss_client.testing.artifacts import ensure_jars, jar_cache_dir
from fluss_client.testing.errors import ArtifactError
from fluss_client.testing.jars import (
    CATALOG_JARS,
    CATALOG_SERVLET_JARS,
    ICEBERG_JARS,
    S3_PLUGIN_JARS,
    S3_STORE_JARS,
    SERVER_JARS,
    Jar,
)

CONTENT = b"the bytes of a jar"
JAR = Jar("org.example", "thing", "1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
NO_JAVA_NEEDED = JavaRuntime(Path("/nowhere"), Path("/nowhere/bin/java"), 17)


class FakeFetch:
    """Stands in for the network: gives `content` for any jar and counts how often."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.count = 0

    def __call__(
        self,
        jars: Sequence[Jar],
        folder: Path,
        java: JavaRuntime,
        on_bytes: Callable[[int], None],
    ) -> None:
        self.count += 1
        for jar in jars:
            (folder / jar.file_name).write_bytes(self.content)
        on_bytes(len(self.content))


@pytest.fixture
def cold_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return jar_cache_dir()


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, cold_cache: Path) -> FakeFetch:
    fake = FakeFetch()
    monkeypatch.setattr(artifacts, "fetch", fake)
    return fake


@pytest.fixture
def dead_network(monkeypatch: pytest.MonkeyPatch, cold_cache: Path) -> None:
    # Port 1 of the loopback interface: nothing listens there, and nothing leaves the machine.
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")


def put(folder: Path, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / JAR.file_name
    path.write_bytes(content)
    return path


def test_a_jar_is_fetched_once_and_then_found(network: FakeFetch, cold_cache: Path) -> None:
    assert ensure_jars([JAR], NO_JAVA_NEEDED) == [cold_cache / "thing-1.0.jar"]
    assert ensure_jars([JAR], NO_JAVA_NEEDED)[0].read_bytes() == CONTENT
    assert network.count == 1
    assert {path.name for path in cold_cache.iterdir()} == {".lock", "thing-1.0.jar"}


@pytest.mark.parametrize("bad", [b"", CONTENT[:-1], CONTENT.swapcase()])
def test_a_corrupt_jar_in_the_cache_is_fetched_anew(
    bad: bytes, network: FakeFetch, cold_cache: Path
) -> None:
    path = put(cold_cache, bad)
    ensure_jars([JAR], NO_JAVA_NEEDED)
    assert path.read_bytes() == CONTENT


def test_a_fetched_jar_with_other_bytes_never_enters_the_cache(
    network: FakeFetch, cold_cache: Path
) -> None:
    network.content = CONTENT.swapcase()
    with pytest.raises(ArtifactError, match="is not the jar that this version expects"):
        ensure_jars([JAR], NO_JAVA_NEEDED)
    assert {path.name for path in cold_cache.iterdir()} == {".lock"}


def test_only_one_of_many_fetches(network: FakeFetch) -> None:
    threads = [threading.Thread(target=ensure_jars, args=([JAR], NO_JAVA_NEEDED)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert network.count == 1


def test_progress_is_told_in_lines_where_no_terminal_is(
    network: FakeFetch, capsys: pytest.CaptureFixture[str]
) -> None:
    ensure_jars([JAR], NO_JAVA_NEEDED)
    output = capsys.readouterr()
    assert "Fetching 1 jar for the local cluster: 100%" in output.err
    assert output.out == ""


def test_a_cold_cache_without_network_is_one_sentence(dead_network: None, cold_cache: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        ensure_jars(SERVER_JARS, find_java())
    message = caught.value.message
    assert message.startswith("org.apache.fluss:fluss-server:0.9.1-incubating and 3 more must be")
    assert "the network does not answer" in message
    assert "\n" not in message
    assert {path.name for path in cold_cache.iterdir()} == {".lock"}


def test_a_corrupt_jar_without_network_is_named(dead_network: None, cold_cache: Path) -> None:
    path = put(cold_cache, b"rubbish")
    with pytest.raises(ArtifactError) as caught:
        ensure_jars([JAR], find_java())
    assert caught.value.message.startswith(f"the cached {path} is corrupt, and org.example:thing")
    assert "\n" not in caught.value.message


def test_a_warm_cache_needs_no_network(dead_network: None, cold_cache: Path) -> None:
    path = put(cold_cache, CONTENT)
    assert ensure_jars([JAR], NO_JAVA_NEEDED) == [path]


def test_a_cache_that_cannot_be_written_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ArtifactError, match=r"cannot be used .* set XDG_CACHE_HOME"):
        ensure_jars([JAR], NO_JAVA_NEEDED)


def test_maven_serves_where_pyspark_is_missing(
    cold_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "mvn"
    tool.parent.mkdir()
    tool.write_text(
        '#!/bin/sh\nfor argument do case "$argument" in -DoutputDirectory=*)\n'
        f'  printf "%s" "{CONTENT.decode()}" > "${{argument#*=}}/{JAR.file_name}";; esac; done\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    monkeypatch.setattr(artifacts, "find_ivy", lambda: None)
    assert ensure_jars([JAR], NO_JAVA_NEEDED)[0].read_bytes() == CONTENT


def test_without_any_tool_the_error_names_two(
    cold_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(artifacts, "find_ivy", lambda: None)
    with pytest.raises(ArtifactError, match=r"fluss-orchestrate\[spark\].*or install Maven"):
        ensure_jars([JAR], NO_JAVA_NEEDED)


def test_every_jar_is_pinned_and_no_address_is_written() -> None:
    beside = (*S3_PLUGIN_JARS, *S3_STORE_JARS, *CATALOG_JARS, *CATALOG_SERVLET_JARS)
    for jar in (*SERVER_JARS, *ICEBERG_JARS, *beside):
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)
        assert jar.size_bytes > 0
    for path in Path(artifacts.__file__).parent.glob("*.py"):
        # The name of an XML namespace is no address: nothing is fetched from it.
        text = re.sub(r'xmlns:\w+="[^"]*"', "", path.read_text())
        assert not re.search(r"https?://\w", text), path
