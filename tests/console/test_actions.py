"""Actions: what they ask, what they do, what they record, and who may not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect

from fluss_client import TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate import IncrementalScan, load_rows
from fluss_orchestrate.console.access import FormTokens, LocalAccess, Viewer
from fluss_orchestrate.console.app import create_app
from fluss_orchestrate.core.checkpoints.events import EventKind
from tests.console.place import USER, Place, rows, served, served_app, visitor

TOKEN = re.compile(r'name="token" value="([^"]+)"')
SIGNED = re.compile(r'name="signed" value="([^"]*)"')


def behind(place: Place, name: str, *, pending: bool = False) -> str:
    """A new checkpoint at the end of the events, with a pending plan of 5 offsets if wanted."""
    table, checkpoint = f"{place.database}.events", place.name(name)
    scan = IncrementalScan(place.connection, table, checkpoint, place.store)
    with scan.run("run 1") as run:
        run.to_arrow()
    if pending:
        load_rows(place.connection, table, rows(5), f"more {name}")
        scan.plan("run 2")
    place.console.monitor.pass_now()
    return checkpoint


def test_a_reset_says_what_it_does_and_records_why(place: Place, page: Page) -> None:
    name = behind(place, "to-reset", pending=True)
    page.goto(f"{place.url}/checkpoint?name={quote(name)}")
    page.get_by_role("link", name="Reset…").click()
    expect(page.locator(".effects")).to_contain_text("a new generation begins")
    expect(page.locator(".effects")).to_contain_text("of run run 2 is abandoned first")
    page.get_by_label("Earliest").check()
    page.get_by_role("button", name="Reset a checkpoint").click()
    # The browser itself asks for the reason.
    assert page.url.endswith(quote(name, safe="")) or "act/reset" in page.url
    assert place.store.require(name).kind is EventKind.PLAN
    page.get_by_label("Why?").fill("the sink was <b>restored</b>")
    page.get_by_role("button", name="Reset a checkpoint").click()
    expect(page.locator("[role=status]")).to_contain_text("it now stands at earliest")
    head = place.store.require(name)
    assert head.kind is EventKind.RESET
    assert head.details["reason"] == f"the sink was <b>restored</b> ({USER}, in the console)"
    assert head.state.position is not None
    assert set(head.state.position.offsets.values()) == {0}
    page.get_by_role("link", name="Back to the checkpoint").click()
    expect(page.locator(".timeline li.reset")).to_contain_text("<b>restored</b>")
    expect(page.locator(".timeline li.abandon")).to_have_count(1)
    page.goto(f"{place.url}/actions")
    done = page.locator("tr", has_text=name).filter(has_text="done")
    expect(done).to_contain_text(USER)
    expect(done).to_contain_text("the sink was <b>restored</b>")


def test_abandon_tier_and_partitions(place: Place, page: Page) -> None:
    name = behind(place, "to-abandon", pending=True)
    page.goto(f"{place.url}/act/abandon?name={quote(name)}")
    expect(page.locator(".effects")).to_contain_text("5 offsets")
    page.get_by_label("Why?").fill("its run is dead")
    page.get_by_role("button", name="Abandon a pending plan").click()
    expect(page.locator("[role=status]")).to_contain_text("gave up plan")
    assert place.store.require(name).state.pending is None

    table = f"{place.database}.events"
    page.goto(f"{place.url}/act/tier?name={table}")
    page.get_by_label("Why?").fill("a demo")
    page.get_by_role("button", name="Tier now").click()
    expect(page.locator("[role=status]")).to_contain_text("rows into snapshot")
    page.get_by_role("link", name="Back to the lake").click()
    expect(page.locator(".tiles li").first).to_contain_text("0 offsets")

    days = f"{place.database}.days"
    page.goto(f"{place.url}/act/partitions?name={days}")
    page.get_by_label("Created ahead").fill("1")
    page.get_by_label("Retained before").fill("2")
    page.get_by_role("button", name="Show what it would do").click()
    plan = page.locator("section[aria-labelledby=plan]")
    # The old partition has a row that the checkpoint has not read.
    expect(plan).to_contain_text("20200101: checkpoint")
    page.get_by_label("Why?").fill("the window moves")
    page.get_by_role("button", name="Create and drop partitions").click()
    expect(page.locator("[role=status]")).to_contain_text("1 created, 0 dropped, 1 kept")
    admin = place.connection.get_admin().result()
    infos = admin.list_partition_infos(TablePath(place.database, "days")).result()
    assert len(infos) == 3


@pytest.fixture
def client(place: Place) -> Iterator[httpx.Client]:
    with visitor(place.url) as opened:
        yield opened


def form(client: httpx.Client, path: str, name: str) -> dict[str, str]:
    """The hidden fields of a form, and a reason."""
    text = client.get(path, params={"name": name}).text
    found, signed = TOKEN.search(text), SIGNED.search(text)
    assert found is not None
    assert signed is not None
    return {
        "name": name,
        "token": found[1],
        "signed": signed[1],
        "reason": "why not",
        "to": "latest",
    }


def test_a_form_from_elsewhere_changes_nothing(place: Place, client: httpx.Client) -> None:
    name = behind(place, "guarded")
    before = place.store.require(name).sequence
    fields = form(client, "/act/reset", name)
    here = {"origin": place.url}
    refused = {
        "no origin": client.post("/act/reset", data=fields),
        "another origin": client.post(
            "/act/reset", data=fields, headers={"origin": "https://evil.example"}
        ),
        "another site": client.post(
            "/act/reset", data=fields, headers={**here, "sec-fetch-site": "cross-site"}
        ),
        "no token": client.post("/act/reset", data={**fields, "token": ""}, headers=here),
        "of another name": client.post(
            "/act/reset", data={**fields, "name": place.name("to-files")}, headers=here
        ),
        "of another action": client.post("/act/abandon", data=fields, headers=here),
        "another host": client.get("/", headers={"host": "evil.example"}),
    }
    assert {why: a.status_code for why, a in refused.items()} == {
        **dict.fromkeys(refused, 403),
        "another host": 421,
    }
    no_reason = client.post("/act/reset", data={**fields, "reason": "  "}, headers=here)
    assert no_reason.status_code == 400
    changed = client.post("/act/reset", data={**fields, "signed": "other plan"}, headers=here)
    assert changed.status_code == 409
    assert place.store.require(name).sequence == before
    assert client.post("/act/reset", data=fields, headers=here).status_code == 200
    assert place.store.require(name).sequence == before + 1


def test_read_only_unless_allowed(place: Place) -> None:
    with (
        served(place.console, may_act=False) as url,
        visitor(url) as client,
    ):
        name = place.name("to-files")
        assert "Reset…" not in client.get("/checkpoint", params={"name": name}).text
        assert client.get("/act/reset", params={"name": name}).status_code == 403
        answer = client.post("/act/reset", data={"name": name}, headers={"origin": url})
        assert answer.status_code == 403


def test_headers_and_a_console_without_an_access(place: Place, client: httpx.Client) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    with served_app(create_app(place.console)) as url:
        for path in ("/", "/api/overview", "/metrics", "/act/reset"):
            assert httpx.get(url + path, trust_env=False, timeout=None).status_code == 401


def test_another_address_needs_the_token(place: Place) -> None:
    app = create_app(place.console)
    with pytest.raises(ConfigError, match="needs a token"):
        LocalAccess(app, "0.0.0.0", None, may_act=False, user=USER)
    with pytest.raises(ConfigError, match="at least 16"):
        LocalAccess(app, "0.0.0.0", "short", may_act=False, user=USER)
    token = "a token that is long enough"
    guarded = LocalAccess(app, "0.0.0.0", token, may_act=False, user=USER)
    with served_app(guarded) as url, visitor(url) as http:
        assert http.get("/metrics").status_code == 401
        wrong = http.get("/metrics", headers={"authorization": "Bearer no"})
        assert wrong.status_code == 401
        right = {"authorization": f"Bearer {token}"}
        assert http.get("/metrics", headers=right).status_code == 200
        asked = http.get("/", headers={"accept": "text/html"})
        assert asked.headers["location"] == "/login"
        assert "Token" in http.get("/login").text
        origin = {"origin": url}
        assert http.post("/login", data={"token": "no"}, headers=origin).status_code == 403
        assert http.post("/login", data={"token": token}).status_code == 403
        good = http.post("/login", data={"token": token}, headers=origin)
        assert good.status_code == 303
        cookie = good.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert token not in cookie
        assert http.get("/").status_code == 200
        http.cookies.clear()
        forged = {"cookie": "fluss_console=99999999999.00"}
        assert http.get("/metrics", headers=forged).status_code == 401


def test_tokens_of_forms_are_for_one_viewer_and_one_action(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    tokens, ann, bob = FormTokens(b"key"), Viewer("ann", True), Viewer("bob", True)
    token = tokens.issue(ann, "reset\na")
    assert tokens.accepts(token, ann, "reset\na")
    assert FormTokens(b"key").accepts(token, ann, "reset\na")
    assert not tokens.accepts(token, bob, "reset\na")
    assert not tokens.accepts(token, ann, "reset\nb")
    assert not FormTokens(b"other").accepts(token, ann, "reset\na")
    for wrong in ("", ".", "x.y", "99999999999.", "٣.a"):
        assert not tokens.accepts(wrong, ann, "reset\na")
    later = time.time() + 7_300
    monkeypatch.setattr("time.time", lambda: later)
    assert not tokens.accepts(token, ann, "reset\na")


def test_no_secret_is_in_any_answer(place: Place, client: httpx.Client) -> None:
    """The password of the client, which nothing of the console needs."""
    secret = "a-secret-that-nobody-sees"
    place.connection.config.security_sasl_password = secret
    try:
        paths = ("/", "/tables", "/checkpoints", "/lakes", "/loads", "/actions", "/metrics")
        name = f"?name={place.database}.events"
        answers = [client.get(p).text for p in (*paths, f"/table{name}", f"/lake{name}")]
        answers += [client.get(f"/api{p}").text for p in ("/overview", "/tables", "/loads")]
        assert not [text for text in answers if secret in text]
    finally:
        place.connection.config.security_sasl_password = ""
