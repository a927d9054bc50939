"""Limits in bytes: what a sample of the log weighs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fluss_client.runtime import runtime
from fluss_orchestrate.core.incremental.planning.limits import (
    DEFAULT_ROW_BYTES,
    offsets_of_bytes,
    row_bytes,
)
from fluss_orchestrate.core.incremental.planning.observation import observe
from fluss_orchestrate.core.incremental.time.timestamps import Prober
from tests.orchestrate.incremental.events import EventTables, rows


def test_rows_are_weighed_by_the_columns_that_are_read(tables: EventTables) -> None:
    table = tables.events(buckets=2)
    for start in range(0, 200, 50):
        tables.append(table, rows(range(start, start + 50)))
    core = tables.connection
    path = table.get_table_info().table_path
    view = runtime().call(observe(core.backend, "default", path))
    starts = dict.fromkeys(view.latest, 0)

    def weighed(columns: tuple[int, ...]) -> float:
        prober = Prober(core.backend, core.config, view.info, columns)
        return runtime().call(row_bytes(prober, starts, view.latest))

    everything: pa.Table = rows(range(200))
    wide = weighed(tuple(range(len(view.info.schema.columns))))
    assert wide == pytest.approx(everything.nbytes / 200, rel=0.3)
    assert weighed((0,)) < wide

    prober = Prober(core.backend, core.config, view.info)
    assert runtime().call(row_bytes(prober, {}, {})) == DEFAULT_ROW_BYTES
    assert runtime().call(offsets_of_bytes(prober, starts, view.latest, 1)) == 1
