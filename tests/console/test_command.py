"""`fluss-orchestrate ui` and `status --html` as they are started; what they say holds no secret."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fluss_client import Config, FlussConnection
from fluss_orchestrate import TableSpec, apply_tables, load_rows
from tests.cli.running import SCRIPT
from tests.console.place import rows, visitor
from tests.console.test_metrics import HTTPServer, collector, points_of

__all__ = ["collector"]

TOKEN = "a-token-that-nobody-sees"
PASSWORD = "a-password-that-nobody-sees"


@pytest.fixture
def address(tmp_path: Path) -> str:
    """An embedded directory with a table."""
    found = f"embedded:{tmp_path / 'fluss'}"
    with FlussConnection.create(Config({"bootstrap.servers": found})).result() as connection:
        spec = {"table": "shop.events", "columns": {"id": "bigint", "item": "string"}}
        apply_tables(connection, [TableSpec.from_mapping(spec)])
        load_rows(connection, "shop.events", rows(10), "first")
    return found


def environment(home: Path, address: str, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FLUSS_", "OTEL_"))}
    mine = {"FLUSS_BOOTSTRAP_SERVERS": address, "XDG_CACHE_HOME": str(home / "cache")}
    return {**kept, **mine, "XDG_CONFIG_HOME": str(home), **more}


@contextmanager
def running(
    arguments: list[str], env: dict[str, str], log: Path
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and where it serves; SIGINT ends it."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [str(SCRIPT), "ui", "--port", "0", *arguments],
            env=env,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.match(r"(http://\S+)/", said)
            assert found is not None, said + log.read_text()
            yield process, found[1]
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate()
            log.write_text(said + rest + log.read_text())


def test_it_serves_until_it_is_stopped_and_exports(
    address: str, tmp_path: Path, collector: HTTPServer
) -> None:
    otlp = f"http://127.0.0.1:{collector.server_port}"
    env = environment(tmp_path, address, OTEL_EXPORTER_OTLP_ENDPOINT=otlp)
    with (
        running(["--opentelemetry"], env, tmp_path / "log") as (process, url),
        visitor(url) as client,
    ):
        assert "shop.events" in client.get("/").text
        assert client.get("/act/reset").status_code == 403
        said = client.get("/metrics").text
    assert process.returncode in (0, 130)
    assert "Traceback" not in (tmp_path / "log").read_text()
    found = points_of(collector.sent)  # type: ignore[attr-defined]
    assert 10.0 in found["fluss.table.rows"]
    assert 'table="shop.events"} 10\n' in said


def test_neither_pages_nor_logs_hold_a_secret(address: str, tmp_path: Path) -> None:
    """Also while pages fail, and while somebody guesses the token."""
    env = environment(tmp_path, address, FLUSS_CONSOLE_TOKEN=TOKEN, FLUSS_SASL_PASSWORD=PASSWORD)
    texts = []
    with running(["--allow-actions"], env, tmp_path / "log") as (_, url):
        bearer = {"authorization": f"Bearer {TOKEN}"}
        paths = ("/", "/tables", "/table?name=shop.events", "/checkpoint?name=none", "/lake?name=x")
        with visitor(url) as client:
            for path in (*paths, "/api/overview", "/metrics", "/loads", "/act/tier?name=x"):
                for headers in ({}, bearer, {"authorization": "Bearer guessed"}):
                    answer = client.get(path, headers=headers)
                    texts += [answer.text, str(answer.headers)]
            origin = {"origin": url}
            for token in ("guessed", TOKEN):
                answer = client.post("/login", data={"token": token}, headers=origin)
                texts += [answer.text, str(answer.headers)]
            assert answer.status_code == 303
    texts.append((tmp_path / "log").read_text())
    assert not [text for text in texts if TOKEN in text or PASSWORD in text]


def test_a_page_to_mail(address: str, tmp_path: Path) -> None:
    file = tmp_path / "status.html"
    done = subprocess.run(
        [str(SCRIPT), "status", "--html", str(file)],
        env=environment(tmp_path, address),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    assert "shop.events" in text
    assert "<script" not in text
    assert "http" not in re.sub(r'http-equiv="[^"]+"', "", text)
