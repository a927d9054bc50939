"""Merging whole batches against the plain description: one record after the other."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluss_client.backend.embedded.maintenance import check
from tests.embedded.helpers import (
    Change,
    Row,
    key_state,
    key_table,
    on_loop,
    opened,
    read_log,
    upsert,
)

COLUMNS = ("k", "a", "b")


@dataclass
class Model:
    """What the server does, record by record."""

    image: str = "FULL"
    first_row: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    end: int = 0

    def batch(self, records: list[tuple[bool, Row]], targets: tuple[str, ...] | None) -> None:
        start = self.end
        for delete, row in records:
            if delete:
                self._delete(row["k"], targets)
            else:
                self._upsert(row, targets)
        # A batch that changes nothing still takes an offset.
        self.end = max(self.end, start + 1)

    def _say(self, kind: str, row: Row) -> None:
        self.log.append((self.end, kind, dict(row)))
        self.end += 1

    def _upsert(self, row: Row, targets: tuple[str, ...] | None) -> None:
        key, old = row["k"], self.rows.get(row["k"])
        if self.image == "WAL" and targets is None and not self.first_row:
            self.rows[key] = dict(row)
            self._say("+U", row)
            return
        if self.first_row and old is not None:
            return
        if targets == ("k",) and old is not None:
            return
        new = dict(row)
        if targets is not None:
            kept = old or dict.fromkeys(COLUMNS)
            new = {name: row[name] if name in targets else kept[name] for name in COLUMNS}
        self._replace(key, old, new)

    def _delete(self, key: int, targets: tuple[str, ...] | None) -> None:
        old = self.rows.get(key)
        if self.first_row or old is None:
            return
        if targets is not None and any(old[n] is not None for n in COLUMNS if n not in targets):
            new = {n: None if n in targets and n != "k" else old[n] for n in COLUMNS}
            self._replace(key, old, new)
            return
        del self.rows[key]
        self._say("-D", old)

    def _replace(self, key: int, old: Row | None, new: Row) -> None:
        self.rows[key] = new
        if old is None:
            self._say("+I", new)
            return
        if self.image == "FULL":
            self._say("-U", old)
        self._say("+U", new)


rows = st.fixed_dictionaries(
    {
        "k": st.integers(0, 4),
        "a": st.none() | st.sampled_from(["x", "y", "zz"]),
        "b": st.none() | st.integers(-3, 3),
    }
)
batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.booleans(), rows), max_size=8),
        st.sampled_from([None, None, ("k", "a"), ("k", "b"), ("k",), COLUMNS]),
    ),
    max_size=5,
)


@pytest.mark.parametrize("image", ["FULL", "WAL"])
@pytest.mark.parametrize("first_row", [False, True])
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(program=batches)
def test_batches_act_like_their_records_one_by_one(
    image: str, first_row: bool, program: list[Any]
) -> None:
    model = Model(image, first_row)
    properties = {"table.changelog.image": image}
    if first_row:
        properties["table.merge-engine"] = "first_row"

    async def run(folder: Path) -> tuple[list[Change], list[Row], int]:
        async with opened(folder) as backend:
            table = await key_table(backend, properties=properties)
            end = 0
            for records, targets in program:
                chosen = None if first_row else targets
                model.batch(records, chosen)
                ack = await upsert(
                    backend,
                    table,
                    [row for _, row in records],
                    [delete for delete, _ in records],
                    targets=None if chosen is None else [COLUMNS.index(n) for n in chosen],
                )
                assert ack.error is None
                end = ack.offset
            return await read_log(backend, table), await key_state(backend, table), end

    with tempfile.TemporaryDirectory() as folder:
        log, state, end = on_loop(run(Path(folder)))
        assert check(folder) == []
    assert log == model.log
    assert state == [model.rows[key] for key in sorted(model.rows)]
    assert end == model.end
