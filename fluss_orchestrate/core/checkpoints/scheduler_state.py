"""Small values that a scheduler keeps between attempts, in a table of the cluster itself.

For schedulers that have no place for such values. The table is a first-row key table, as that of
the checkpoints: every value that is set is a row `(name, sequence)`, the newest row counts, and of
two that set the same sequence the first one wins.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fluss_client import FlussConnection, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import async_connection, backend_of, run_blocking
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.fluss_rows import REPLICAS_WANTED, CheckpointTable

STATE_TABLE = TablePath("fluss_orchestrate", "scheduler_state")
STEPS = 16
"""The number of rows that one request of the search for the newest row looks up."""
SET_ATTEMPTS_MAX = 20
VALUE_BYTES_MAX = 1 << 20


class SchedulerState:
    """Values by name. Its coroutines run where those of the connection do.

    Args:
        core: The connection.
        path: The table that holds the values; it is created when it is first used.
    """

    def __init__(self, core: AsyncConnection, path: TablePath = STATE_TABLE) -> None:
        self._core = core
        self._path = path
        self._opened: CheckpointTable | None = None
        self._opening = asyncio.Lock()

    async def get(self, name: str) -> Any:
        """Return the value that was set last under a name, or None."""
        found = await self._newest(name)
        return None if found is None else found[1]

    async def set(self, name: str, value: Any) -> None:
        """Set the value of a name.

        Args:
            name: The name.
            value: Plain values, as JSON has them.

        Raises:
            ConfigError: If the value is too large, or others kept setting it.
        """
        body = json.dumps(value).encode()
        if len(body) > VALUE_BYTES_MAX:
            raise ConfigError(
                f"the state of {name} has {len(body)} bytes; at most {VALUE_BYTES_MAX} are kept"
            )
        table = await self._table()
        for _ in range(SET_ATTEMPTS_MAX):
            newest = await self._newest(name)
            sequence = 0 if newest is None else newest[0] + 1
            await table.put(
                [
                    {
                        "name": name,
                        "seq": sequence,
                        "kind": "state",
                        "plan_id": "",
                        "created_ms": now_ms(),
                        "body": body,
                    }
                ]
            )
            # Another writer may have taken the sequence: the row in the table counts.
            (row,) = await table.lookup([(name, sequence)])
            if row is not None and bytes(row["body"]) == body:
                return
        raise ConfigError(f"the state of {name} could not be set: others set it all the time")

    async def _table(self) -> CheckpointTable:
        async with self._opening:
            if self._opened is None:
                self._opened = await CheckpointTable.open(
                    backend_of(self._core), self._core.config, self._path, REPLICAS_WANTED
                )
            return self._opened

    async def _newest(self, name: str) -> tuple[int, Any] | None:
        """Return the last sequence and its value, by a search: sequences have no gaps."""
        table = await self._table()
        low = 0
        row = (await table.lookup([(name, 0)]))[0]
        if row is None:
            return None
        while True:
            ahead = [low + 2**n for n in range(STEPS)]
            rows = await table.lookup([(name, sequence) for sequence in ahead])
            there = [n for n, found in enumerate(rows) if found is not None]
            if not there:
                break
            low, row = ahead[there[-1]], rows[there[-1]]
        assert row is not None
        return low, json.loads(bytes(row["body"]))


def get_state(connection: FlussConnection, name: str) -> Any:
    """Return the value that was set last under a name, or None. Blocks."""
    return run_blocking(SchedulerState(async_connection(connection)).get(name))


def set_state(connection: FlussConnection, name: str, value: Any) -> None:
    """Set the value of a name. Blocks.

    Raises:
        ConfigError: If the value is too large, or others kept setting it.
    """
    run_blocking(SchedulerState(async_connection(connection)).set(name, value))
