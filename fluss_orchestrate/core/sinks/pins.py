"""Writer ids that belong to a plan, kept in Fluss so that every attempt uses the same ones.

A server knows the last five batches of a writer id in a bucket. So a plan is cut into units of at
most five batches per bucket, always at the same rows, and each unit gets a writer id before it is
sent. The first attempt to pin a unit wins, all others use its writer id.

    (sink/<target's table id>/<plan id>, 0)   how the plan is cut, and when it was begun
    (…, 1)                                    the plan is done
    (…, 2 + n)                                the writer id of unit n
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import CorruptDataError
from fluss_client.model.table import TableInfo, TablePath
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.fluss_rows import CheckpointTable

HEADER, DONE, FIRST_UNIT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Cut:
    """How a plan is cut: the first attempt decides, for good."""

    batch_rows: int
    created_ms: int


class Pins:
    """The pins of one plan for one target. Its coroutines run on the I/O thread."""

    def __init__(self, backend: Backend, ledger: CheckpointTable, target: TableInfo, plan_id: str):
        self._backend = backend
        self._ledger = ledger
        self._target = target
        self._plan_id = plan_id
        self._name = f"sink/{target.table_id}/{plan_id}"

    @staticmethod
    async def open_ledger(
        backend: Backend, config: Config, path: TablePath, replicas: int
    ) -> CheckpointTable:
        """The table of all pins, created when it is not there."""
        return await CheckpointTable.open(backend, config, path, replicas)

    async def cut(self, proposed_rows: int | None = None) -> Cut | None:
        """How the plan is cut; with a proposal, that one if nobody was first."""
        row = await self._row(HEADER)
        if row is None and proposed_rows is not None:
            await self._put(HEADER, "cut", body={"batch_rows": proposed_rows})
            row = await self._must(HEADER)
        if row is None:
            return None
        return Cut(int(_body(row)["batch_rows"]), int(row["created_ms"]))

    async def writer_id(self, unit: int) -> int:
        """The writer id of a unit, pinned now if it was not."""
        row = await self._row(FIRST_UNIT + unit)
        if row is None:
            own = await self._backend.init_writer([self._target.table_path])
            await self._put(FIRST_UNIT + unit, "unit", target=own)
            row = await self._must(FIRST_UNIT + unit)
        return int(row["target"])

    async def done(self) -> dict[str, Any] | None:
        """What was recorded when the plan was done; None if it is not."""
        row = await self._row(DONE)
        return None if row is None else _body(row)

    async def finish(self, rows: int, size: int) -> None:
        """Record that every unit is in the target."""
        await self._put(DONE, "done", body={"rows": rows, "bytes": size})

    async def _row(self, seq: int) -> dict[str, Any] | None:
        return (await self._ledger.lookup([(self._name, seq)]))[0]

    async def _must(self, seq: int) -> dict[str, Any]:
        row = await self._row(seq)
        if row is None:
            raise CorruptDataError(f"the pin ({self._name}, {seq}) was written and is not there")
        return row

    async def _put(
        self, seq: int, kind: str, target: int | None = None, body: dict[str, Any] | None = None
    ) -> None:
        await self._ledger.put(
            [
                {
                    "name": self._name,
                    "seq": seq,
                    "kind": kind,
                    "plan_id": self._plan_id,
                    "created_ms": now_ms(),
                    "target": target,
                    "body": None if body is None else json.dumps(body).encode(),
                }
            ]
        )


def _body(row: dict[str, Any]) -> dict[str, Any]:
    value = json.loads(row["body"])
    assert isinstance(value, dict)
    return value
