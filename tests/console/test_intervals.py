"""Scans by intervals: a link to one leads to what was read, also when all of them are retired."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from fluss_client import Config, FlussConnection
from fluss_orchestrate import IntervalScan, TableSpec, apply_tables, load_rows
from fluss_orchestrate.console import formats
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.checkpoints.events import IntervalName
from fluss_orchestrate.core.overview import gathering
from fluss_orchestrate.core.overview.gathering import Gatherer
from tests.console.place import HOUR_MS, Place, rows, visitor


def test_a_scan_by_intervals_has_a_page(place: Place, page: Page) -> None:
    """Its intervals, the time that none has read, and what the sink has taken of each bucket."""
    page.goto(f"{place.url}/checkpoint?name={quote(place.name('hourly'))}")
    expect(page.locator("h1")).to_have_text(place.name("hourly"))
    states = page.locator("section[aria-labelledby=each] tbody .tag").all_inner_texts()
    assert states == ["pending", "committed", "committed"]
    expect(page.locator("section[aria-labelledby=gaps] li")).to_contain_text("2 h")
    taken = page.locator("section[aria-labelledby=places] tbody td:nth-child(5)")
    assert sum(int(text) for text in taken.all_inner_texts()) == 300
    page.locator("section[aria-labelledby=each] tbody tr").nth(1).get_by_role("link").click()
    expect(page.locator(".head")).to_contain_text("retired")
    expect(page.locator(".timeline li.commit")).to_contain_text("300 rows")
    page.get_by_role("link", name=place.name("hourly"), exact=True).click()
    expect(page.locator("h1")).to_have_text(place.name("hourly"))


def test_backfills_are_beside_their_checkpoint(place: Place, page: Page) -> None:
    page.goto(f"{place.url}/checkpoint?name={quote(place.name('to-files'))}")
    beside = page.locator("section[aria-labelledby=intervals] tbody tr")
    expect(beside).to_have_count(1)
    expect(beside).to_contain_text("airflow/hourly/to-files/backfill")
    expect(page.locator("section[aria-labelledby=places] tbody tr")).to_have_count(2)


def test_checkpoints_of_a_task_are_found_by_its_runs(place: Place, page: Page) -> None:
    page.goto(f"{place.url}/checkpoints?run={quote('airflow/hourly/report/')}")
    names = page.locator("tbody th").all_inner_texts()
    assert place.name("hourly") in names
    assert not [name for name in names if "to-sql" in name]
    page.goto(f"{place.url}/checkpoints?run={quote('airflow/another/')}")
    expect(page.locator("tbody")).to_contain_text("moved last by")


def test_an_open_interval_is_behind_by_its_own_rows_only(place: Place) -> None:
    with visitor(place.url) as client:
        found = client.get("/api/overview").json()["answer"]
        scan = client.get("/api/checkpoint", params={"name": place.name("hourly")}).json()
    [sums] = [each for each in found["intervals"] if each["name"] == place.name("hourly")]
    assert (sums["committed"], sums["pending"], sums["missing"], sums["rows"]) == (2, 1, 1, 300)
    assert scan["answer"]["intervals"] == sums
    [pending] = [each for each in scan["answer"]["each"] if each["state"] == "pending"]
    [one] = [c for c in found["checkpoints"] if c["name"] == pending["name"]]
    assert one["unread"] == pending["offsets"] == 40


def test_finished_intervals_are_looked_at_by_turns_and_kept_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset of one of many finished intervals shows within as many passes as there are parts."""
    monkeypatch.setattr(gathering, "DONE_PER_PASS_MAX", 2)
    config = Config({"bootstrap.servers": f"embedded:{tmp_path / 'fluss'}"})
    with FlussConnection.create(config).result() as connection:
        spec = {"table": "shop.events", "columns": {"id": "bigint", "item": "string"}}
        apply_tables(connection, [TableSpec.from_mapping(spec)])
        load_rows(connection, "shop.events", rows(10), "first")
        store = FlussCheckpointStore(connection)
        scan = IntervalScan(connection, "shop.events", "hourly", store, settle_ms=0)
        for number in range(8):
            with scan.run(f"run {number}", number * HOUR_MS, (number + 1) * HOUR_MS) as run:
                run.to_arrow()
        gatherer = Gatherer(connection)
        first = gatherer.gather()
        assert first.overview.checkpoints == ()
        assert first.overview.intervals[0].committed == 8
        assert all(head.state.position is None for head in gatherer._heads.values())
        name = str(IntervalName("hourly", 0, HOUR_MS))
        store.reset(name, None, "again")
        states = []
        for _ in range(4):
            [each] = [i for i in gatherer.gather().intervals["hourly"] if i.name == name]
            states.append(each.state)
        assert states[-1] == "reset"
        assert gatherer.gather().overview.intervals[0].committed == 7


def test_names_of_intervals_for_people() -> None:
    eight = 1_795_075_200_000
    name = str(IntervalName("sales/hourly", eight, eight + HOUR_MS))
    assert IntervalName.of(name) == IntervalName("sales/hourly", eight, eight + HOUR_MS)
    assert IntervalName.of("sales/hourly") is None
    assert IntervalName.of("a\nb/[0,1)") == IntervalName("a\nb", 0, 1)
    assert formats.checkpoint(name) == "sales/hourly, 2026-11-19 08:00 to 09:00"
    assert formats.checkpoint("sales/hourly") == "sales/hourly"
