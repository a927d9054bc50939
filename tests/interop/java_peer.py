"""Fluss's Java client as another party on the same tables: `java/Peer.java` behind pipes."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fluss_client as fluss
from fluss_client.testing.artifacts import ensure_jars
from fluss_client.testing.errors import ArtifactError, JavaNotFoundError
from fluss_client.testing.jars import SERVER_JARS, Jar
from fluss_client.testing.java import find_java
from tests.interop.peer_values import to_peer
from tests.needs import unavailable
from tests.waiting import scaled

CLIENT_JARS = {
    "1.0.0": Jar(
        "org.apache.fluss",
        "fluss-client",
        "1.0.0",
        69224152,
        "a73101b243277f618f0acfd8a38eb31635f9cb903c040168809d480f575654c0",
    ),
    "0.9.1-incubating": Jar(
        "org.apache.fluss",
        "fluss-client",
        "0.9.1-incubating",
        68821740,
        "6921994a2067704ac714cb03cc727ff8448453815eda83b792cd6f937fc491d2",
    ),
}
SOURCE = Path(__file__).parent / "java" / "Peer.java"
ANSWER_DEADLINE_S = 90.0


class PeerError(Exception):
    """What the Java client raised."""


class JavaPeer:
    """One Java process; requests one after the other."""

    def __init__(self, version: str, folder: Path) -> None:
        try:
            java = find_java()
            jars = [*ensure_jars([CLIENT_JARS[version]], java), *ensure_jars(SERVER_JARS[1:], java)]
        except (JavaNotFoundError, ArtifactError) as error:
            unavailable(error.message)
        if not (java.home / "jmods").is_dir() and not (java.home / "bin" / "javac").exists():
            unavailable(
                f"a JDK: {java.home} has no compiler for {SOURCE.name}",
                "apt-get install openjdk-17-jdk-headless",
            )
        logging = folder / "log4j2.properties"
        logging.write_text("status = off\nrootLogger.level = off\n")
        self._errors = (folder / "peer.err").open("w+b")
        self._process = subprocess.Popen(
            java.command(
                "-Xmx512m",
                "--add-opens=java.base/java.nio=ALL-UNNAMED",
                f"-Dlog4j.configurationFile={logging}",
                "-cp",
                os.pathsep.join(map(str, jars)),
                str(SOURCE),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="java-peer", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def call(self, settings: Mapping[str, Any], call: str, table: str, **request: Any) -> Any:
        """One request; what Java raises is a `PeerError`."""
        assert self._process.stdin is not None
        asked = {"settings": {k: str(v) for k, v in settings.items()}, "call": call, "table": table}
        self._process.stdin.write(json.dumps(asked | request).encode() + b"\n")
        self._process.stdin.flush()
        line = self._answers.get(timeout=scaled(ANSWER_DEADLINE_S))
        if not line:
            self._errors.seek(0)
            raise PeerError("the Java process ended: " + self._errors.read()[-2000:].decode())
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer["result"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(scaled(20))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._errors.close()


class JavaTable:
    """A table in the Java client's hands, with rows given and taken as Python values."""

    def __init__(
        self, peer: JavaPeer, settings: Mapping[str, Any], table: fluss.FlussTable
    ) -> None:
        self._peer = peer
        self._settings = settings
        self._info = table.get_table_info()
        self.path = str(self._info.table_path)

    def _call(self, call: str, **request: Any) -> Any:
        return self._peer.call(self._settings, call, self.path, **request)

    def form(self, row: Mapping[str, Any], columns: Sequence[str] | None = None) -> list[Any]:
        """A row in the form in which Java gives it back."""
        schema = self._info.schema
        names = schema.get_column_names() if columns is None else columns
        return [to_peer(row.get(name), schema.column(name).type) for name in names]

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._call("append", rows=[self.form(row) for row in rows])

    def upsert(
        self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None
    ) -> None:
        self._call("upsert", rows=[self.form(row) for row in rows], columns=columns)

    def delete(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._call("delete", rows=[self.form(row) for row in rows])

    def scan(self, columns: Sequence[str] | None = None) -> list[tuple[int, int, str, list[Any]]]:
        """`(bucket, offset, change, row)` of the whole log, by bucket and offset."""
        return sorted(
            (tuple(r) for r in self._call("scan", columns=columns)), key=lambda r: (r[0], r[1])
        )

    def limit(self, count: int) -> list[list[Any]]:
        found: list[list[Any]] = self._call("limit", limit=count)
        return found

    def lookup(
        self, keys: Sequence[Mapping[str, Any]], prefix: Sequence[str] | None = None
    ) -> list[list[Any]]:
        """The rows of each key, or of each prefix."""
        columns = list(self._info.primary_keys) if prefix is None else list(prefix)
        rows = [self.form(key, columns) for key in keys]
        found: list[list[Any]] = self._call(
            "lookup", rows=rows, columns=columns, prefix=prefix is not None
        )
        return found
