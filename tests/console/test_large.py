"""Many buckets and checkpoints: the first page comes from the cache, and a pass stays short."""

from __future__ import annotations

import time
from pathlib import Path

from playwright.sync_api import Browser

from fluss_client import Config, FlussConnection, TablePath
from fluss_client.engine import table_info
from fluss_orchestrate import TableSpec, apply_tables, load_rows
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.overview.samples import Samples
from tests.console.place import console_of, rows, served
from tests.waiting import patient, scaled

TABLES = 20
ROWS_PER_BUCKET = 8
FIRST_PAINT_MAX_MS = 1_000.0
QUIET_PASS_MAX_S = 5.0
LEARNING_PASSES_MAX = 10
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def test_the_first_page_of_a_large_cluster(
    browser: Browser, tmp_path: Path, long_form: bool
) -> None:
    """10,000 buckets and 500 checkpoints in the long form, a tenth of that otherwise."""
    buckets, checkpoints = (500, 500) if long_form else (50, 50)
    config = Config({"bootstrap.servers": f"embedded:{tmp_path / 'fluss'}"})
    with FlussConnection.create(config).result() as connection:
        names = _fill(connection, buckets, checkpoints)
        file = tmp_path / "samples.sqlite"
        first = console_of(connection, samples=Samples(file))
        first.monitor.start()
        look = first.monitor.look(scaled(300))
        first.close()
        assert look.gathered is not None
        overview = look.gathered.overview
        assert sum(t.buckets for t in overview.tables if t.table in names) == TABLES * buckets
        assert len(overview.checkpoints) == checkpoints
        assert all(c.unread for c in overview.checkpoints)
        # Each pass asks for a bounded number of commit times, so some passes find all of them.
        gather = first.gatherer.gather
        known = gather().overview.checkpoints
        for _ in range(LEARNING_PASSES_MAX):
            if not any(c.buckets_unknown for c in known):
                break
            known = gather().overview.checkpoints
        assert not any(c.buckets_unknown for c in known)
        # A later pass asks for little: nothing has changed.
        began = time.monotonic()
        again = gather()
        quiet_s = time.monotonic() - began
        assert again.overview.checkpoints == known
        if long_form:
            assert quiet_s < scaled(QUIET_PASS_MAX_S), f"a quiet pass took {quiet_s:.1f} s"
        # The next process paints from what this one has kept, before its own first pass.
        second = console_of(connection, samples=Samples(file), interval_s=60)
        with served(second) as url:
            page = patient(browser.new_page())
            page.goto(url)
            assert page.get_by_text("from an earlier run").count() == 1
            paint_ms = float(page.evaluate(PAINT))
            assert page.locator("#live tbody tr").count() >= 50
            page.close()
        second.samples.close()  # type: ignore[union-attr]
        print(
            f"{TABLES * buckets} buckets, {checkpoints} checkpoints: first pass "
            f"{overview.took_ms} ms, quiet pass {quiet_s * 1000:.0f} ms, paint {paint_ms:.0f} ms"
        )
        if long_form:
            assert paint_ms <= scaled(FIRST_PAINT_MAX_MS)


def _fill(connection: FlussConnection, buckets: int, checkpoints: int) -> list[str]:
    columns = {"id": "bigint", "item": "string"}
    names = [f"many.t{number:02}" for number in range(TABLES)]
    apply_tables(
        connection,
        [
            TableSpec.from_mapping(
                {"table": n, "columns": columns, "buckets": buckets, "bucket_keys": ["id"]}
            )
            for n in names
        ],
    )
    store = FlussCheckpointStore(connection)
    for name in names:
        load_rows(connection, name, rows(ROWS_PER_BUCKET * buckets), "first")
    alias = connection.config.resolved_alias()
    for number in range(checkpoints):
        info = table_info(connection, TablePath.parse(names[number % TABLES]))
        offsets = {(None, bucket): 0 for bucket in range(buckets)}
        position = TablePosition(TableIdentity.of(alias, info), offsets)
        store.set_first(f"team {number % 7}/copy {number:03}", position)
    return names
