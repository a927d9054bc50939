"""A real browser, and a console of an embedded directory; `test_cluster` has a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.overview.samples import Samples
from tests.console.place import Place, console_of, fill, served
from tests.fix_either import own_database
from tests.needs import chromium
from tests.waiting import patient, scaled

PASS_S = 120.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for one module: while it is open, an event loop runs on this thread."""
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that must not write a single line to the browser's console."""
    opened = patient(browser.new_page(viewport={"width": 1360, "height": 900}))
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("response", lambda a: a.status < 400 or said.append(f"{a.url}: {a.status}"))
    yield opened
    opened.close()
    assert said == []


@pytest.fixture(scope="session")
def lake_kind() -> str:
    """Embedded: a shared cluster has hundreds of tables of other tests, so each pass takes long."""
    return "embedded"


@pytest.fixture(scope="module")
def place(lake_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    config = Config({"bootstrap.servers": lake_address})
    with (
        FlussConnection.create(config).result() as connection,
        own_database(connection, "console") as database,
    ):
        store = FlussCheckpointStore(connection, database, "checkpoints")
        fill(connection, database, store)
        samples = Samples(tmp_path_factory.mktemp("samples") / "samples.sqlite")
        with console_of(connection, store, samples) as console, served(console) as url:
            assert console.monitor.look(scaled(PASS_S)).gathered is not None
            yield Place(url, console, connection, database, store)
