"""Every page in a real browser: what it shows, that all of it can be read, and nothing is run."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from fluss_orchestrate.console import formats, prometheus
from fluss_orchestrate.console.static_page import static_page
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.overview.figures import (
    CheckpointFigures,
    IntervalScanFigures,
    LakeFigures,
    Overview,
    PendingFigures,
    TableFigures,
)
from tests.console.accessibility import audit
from tests.console.place import HOSTILE, Place, visitor
from tests.waiting import patient


def paths_of(place: Place) -> dict[str, str]:
    """Every page, by its name."""
    hostile, pending = quote(place.name(HOSTILE)), quote(place.name("to-sql"))
    hourly = quote(place.name("hourly"))
    return {
        "overview": "/",
        "tables": "/tables",
        "checkpoints": f"/checkpoints?q={place.database}",
        "lakes": "/lakes",
        "loads": "/loads",
        "actions": "/actions",
        "table": f"/table?name={place.database}.events",
        "partitioned": f"/table?name={place.database}.days",
        "checkpoint": f"/checkpoint?name={pending}",
        "hostile": f"/checkpoint?name={hostile}",
        "intervals": f"/checkpoint?name={hourly}",
        "days": f"/checkpoint?name={pending}&span=days",
        "lake": f"/lake?name={place.database}.events",
        "reset": f"/act/reset?name={hostile}",
        "abandon": f"/act/abandon?name={pending}",
        "tier": f"/act/tier?name={place.database}.events",
        "partitions": f"/act/partitions?name={place.database}.days&unit=day&ahead=1&retain=3",
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_by_everybody(place: Place, page: Page, scheme: str) -> None:
    """No line in the browser's console, labels, headings, contrast, and no script of a name."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    problems = {}
    for name, path in paths_of(place).items():
        answer = page.goto(place.url + path)
        assert answer is not None
        assert answer.status == 200, name
        assert page.title().startswith("taken") is False
        problems[name] = audit(page)
    assert {name: found for name, found in problems.items() if found} == {}


def test_the_overview_says_who_is_behind_and_what_expires(place: Place, page: Page) -> None:
    with visitor(place.url) as client:
        found = client.get("/api/overview").json()["answer"]["checkpoints"]
    [expires] = [c["expires_ms"] for c in found if c["name"] == place.name("to-sql")]
    page.goto(place.url)
    row = page.locator("tr", has_text="to-sql")
    # The minute may end between this line and the page.
    left = [formats.duration(expires - now_ms() - late) for late in (0, 60_000)]
    remaining = re.compile("|".join(left))
    expect(row).to_contain_text("3")
    expect(row).to_contain_text(remaining)
    expect(row).to_contain_text("dagster/run 7/days")
    notice = page.locator(".notices li", has_text="to-sql").first
    expect(notice).to_contain_text(
        re.compile(f"retention may delete unread rows in ({remaining.pattern})")
    )
    hostile = page.locator("tr", has_text=HOSTILE)
    expect(hostile.locator("td.n").first).to_have_text("40")
    table = page.locator("tr", has_text=f"{place.database}.events").last
    expect(table).to_contain_text("340")
    assert page.locator("tr", has_text=place.name("retired")).count() == 0


def test_a_checkpoint_shows_its_history_its_plan_and_every_bucket(place: Place, page: Page) -> None:
    page.goto(f"{place.url}/checkpoints?q={place.database}")
    # The scan of its backfills has the same name, in the list below.
    page.get_by_role("link", name=place.name("to-files")).first.click()
    expect(page.locator("h1")).to_contain_text("to-files")
    kinds = page.locator(".timeline li .kind").all_inner_texts()
    assert kinds == ["commit", "plan"]
    expect(page.locator(".timeline li.commit")).to_contain_text("300 rows")
    expect(page.locator(".timeline li.commit")).to_contain_text("airflow/hourly/to-files/run 1")
    unread = page.locator("section[aria-labelledby=places] tbody tr td:nth-child(7)")
    assert sum(int(text) for text in unread.all_inner_texts()) == 40
    page.goto(f"{place.url}/checkpoint?name={quote(place.name('to-sql'))}")
    pending = page.locator("section[aria-labelledby=pending]")
    expect(pending).to_contain_text("dagster/run 7/days")
    expect(pending).to_contain_text("3 offsets in 2 ranges")
    page.goto(f"{place.url}/checkpoint?name={quote(place.name('retired'))}")
    expect(page.locator(".timeline li.retire")).to_contain_text("it is not needed any more")


def test_tables_lakes_and_loads(place: Place, page: Page) -> None:
    page.goto(f"{place.url}/table?name={place.database}.days")
    expect(page.locator("body")).to_contain_text("in 2 partitions by day")
    expect(page.locator("body")).to_contain_text("20 h")
    page.goto(f"{place.url}/lake?name={place.database}.events")
    snapshots = page.locator("section[aria-labelledby=snapshots] tbody tr")
    assert snapshots.count() == 1
    expect(snapshots).to_contain_text("known to Fluss")
    assert "300" in snapshots.locator("td").all_inner_texts()
    behind = page.locator("section[aria-labelledby=covers] tbody tr td:nth-child(5)")
    assert sum(int(text) for text in behind.all_inner_texts()) == 40
    page.goto(f"{place.url}/loads")
    load = page.locator("tr", has_text=f"{place.database}.events").filter(has_text="second")
    expect(load).to_contain_text("done")
    expect(load).to_contain_text("40")


def test_keyboard_filter_theme_and_a_page_that_follows(place: Place, page: Page) -> None:
    page.goto(f"{place.url}/checkpoints?q={place.database}")
    page.keyboard.press("/")
    page.keyboard.type("to-sql")
    expect(page.locator("[data-filtered] tbody tr:visible")).to_have_count(1)
    page.goto(place.url)
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to content")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.wait_for_selector("#live[data-refreshed='1']")
    assert page.locator("tr", has_text="to-sql").count() >= 1


def test_json_and_metrics_have_the_same_figures(place: Place) -> None:
    with visitor(place.url) as client:
        answer = client.get("/api/overview").json()
        assert answer["problem"] == ""
        found = {c["name"]: c for c in answer["answer"]["checkpoints"]}
        one = found[place.name("to-sql")]
        assert (one["unread"], one["lost"], one["expiry"]) == (3, 0, "known")
        places = client.get("/api/checkpoint", params={"name": one["name"]}).json()["answer"]
        firsts = [p["committed_ms"] for p in places["places"] if p["unread"]]
        assert one["oldest_ms"] == min(firsts)
        assert one["expires_ms"] == min(firsts) + 20 * 3_600_000
        text = client.get("/metrics").text
        labels = f'cluster="default",checkpoint="{one["name"]}",table="{place.database}.days"'
        assert f"fluss_checkpoint_lag_offsets{{{labels}}} 3\n" in text
        left = next(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith(f"fluss_checkpoint_retention_seconds{{{labels}}}")
        )
        assert 71_000 < left < 72_000
        for path in ("/api/tables", "/api/lakes", "/api/loads", "/api/actions"):
            assert client.get(path).status_code == 200
        missing = client.get("/api/table", params={"name": "no.table"})
        assert missing.status_code == 404


def test_a_table_called_script_is_text_on_every_page() -> None:
    """Servers refuse such names today; the pages do not rely on that."""
    now = now_ms()
    lake = LakeFigures(1, 4, now)
    table = TableFigures(HOSTILE, "log", buckets=1, rows=4, lake=lake)
    broken = TableFigures(f"{HOSTILE}.2", problem=HOSTILE)
    pending = PendingFigures(HOSTILE, HOSTILE, HOSTILE, now, 1, 1)
    one = CheckpointFigures(
        HOSTILE, HOSTILE, unread=4, oldest_ms=now, expires_ms=now, pending=pending, last_run=HOSTILE
    )
    other = CheckpointFigures(f"{HOSTILE}2", HOSTILE, problem=HOSTILE)
    scan = IntervalScanFigures(HOSTILE, HOSTILE, HOSTILE, until_ms=now)
    shown = Overview(now, 1, HOSTILE, HOSTILE, 1, (table, broken), (one, other), (scan,))
    text = static_page(shown)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 12
    for line in prometheus.exposition(shown).splitlines():
        assert line.startswith(("#", "fluss_"))


def test_names_are_text_also_where_nothing_is_found(place: Place) -> None:
    with visitor(place.url) as client:
        for path in ("/table", "/checkpoint", "/lake"):
            answer = client.get(path, params={"name": HOSTILE})
            assert answer.status_code == 404
            assert "&lt;script&gt;" in answer.text
            assert "<script>" not in answer.text
        found = client.get("/checkpoints", params={"q": '"><b>'})
        assert "<b>" not in found.text


def test_the_audit_sees_what_is_wrong(browser: Browser) -> None:
    page = patient(browser.new_page())
    page.set_content(
        "<body><h1>a</h1><h3>b</h3><p style='color:#999'>pale text</p><input><a href='/'></a>"
        "<p id='x'>one</p><p id='x'>two</p><table><tr><th>c</th></tr></table>"
    )
    found = " ".join(audit(page))
    for part in ("no language", "not one main", "skips a level", "no label", "id twice: x"):
        assert part in found
    assert 'contrast 2.85 of "pale text"' in found
    assert "a table without a caption" in found
    page.close()
