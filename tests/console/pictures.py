"""The pictures of the console in the docs: `python -m tests.console.pictures`.

They are taken from the place of the tests, in an embedded directory. The history in the charts is
made up, because a place that was just made has none.
"""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import sync_playwright

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.overview.figures import Overview
from fluss_orchestrate.core.overview.samples import Samples
from tests.console.place import console_of, fill, served
from tests.needs import chromium
from tests.waiting import patient

IMAGES = Path(__file__).parents[2] / "docs" / "images"
DATABASE = "sales"
MINUTES = 170
PICTURES = {
    "console-overview": ("/", "light"),
    "console-checkpoint": (f"/checkpoint?name={quote(f'{DATABASE}/to-files')}", "dark"),
    "console-intervals": (f"/checkpoint?name={quote(f'{DATABASE}/hourly')}", "light"),
    "console-reset": (f"/act/reset?name={quote(f'{DATABASE}/to-files')}", "light"),
}


def take(folder_of_pictures: Path) -> None:
    """Take all pictures."""
    folder_of_pictures.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        before = Path.cwd()
        os.chdir(folder)  # so that the pages show no path of this machine
        config = Config({"bootstrap.servers": "embedded:fluss", "cluster.alias": "shop"})
        with FlussConnection.create(config).result() as connection:
            store = FlussCheckpointStore(connection, DATABASE, "checkpoints")
            connection.get_admin().result().create_database(DATABASE).result()
            fill(connection, DATABASE, store, hostile="to-reports")
            samples = Samples(Path(folder) / "samples.sqlite")
            console = console_of(connection, store, samples, interval_s=5)
            _remember(samples, console.gatherer.gather().overview)
            browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            with console, served(console) as url:
                console.look()
                for name, (path, scheme) in PICTURES.items():
                    page = patient(
                        browser.new_page(
                            viewport={"width": 1280, "height": 860},
                            color_scheme=scheme,  # type: ignore[arg-type]
                        )
                    )
                    page.goto(url + path)
                    page.screenshot(path=folder_of_pictures / f"{name}.png")
                    page.close()
            browser.close()
            samples.close()
        os.chdir(before)


def _remember(samples: Samples, overview: Overview) -> None:
    """Record overviews of the last hours."""
    for minute in range(MINUTES, 0, -1):
        wave = 1 + math.sin(minute / 9) * 0.6 + (minute % 7) / 20
        tables = tuple(
            replace(
                t,
                offsets=round(t.offsets * (1 - minute / 400)),
                lake=None if t.lake is None else replace(t.lake, behind=round(40 * wave)),
            )
            for t in overview.tables
        )
        checkpoints = tuple(
            c if c.unread is None else replace(c, unread=round((c.unread + 1) * wave * 2))
            for c in overview.checkpoints
        )
        at = overview.observed_ms - minute * 60_000
        samples.add(replace(overview, observed_ms=at, tables=tables, checkpoints=checkpoints))


if __name__ == "__main__":
    take(IMAGES)
