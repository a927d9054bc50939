"""Commit times of batches, kept between passes: the batch at an offset never changes.

A pass asks for a bounded number of them. What was left out is unknown in that pass, and its figures
say so; later passes ask for the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import backend_of
from fluss_client.errors import FlussError
from fluss_orchestrate.core.checkpoints.report import CommitTimes, ask_each, probing
from fluss_orchestrate.core.incremental.planning.observation import TableView
from fluss_orchestrate.core.incremental.time.timestamps import Prober
from fluss_orchestrate.core.plan import Place

PROBES_PER_PASS_MAX = 2_000
TIMES_KEPT_MAX = 200_000


class KnownTimes:
    """The commit times that were found so far. It is used on the I/O thread only."""

    def __init__(
        self, probes_max: int = PROBES_PER_PASS_MAX, kept_max: int = TIMES_KEPT_MAX
    ) -> None:
        self._probes_max = probes_max
        self._kept_max = kept_max
        self._left = probes_max
        self._known: OrderedDict[tuple[int, Place, int], int] = OrderedDict()

    def begin_pass(self) -> None:
        """Allow the next number of questions."""
        self._left = self._probes_max

    def of(self, core: AsyncConnection, view: TableView) -> CommitTimes:
        """Return the function that finds the commit times of a table's batches."""
        ask = probing(Prober(backend_of(core), core.config, view.info))
        table_id = view.info.table_id

        async def ask_one(place: Place, offset: int) -> int | None:
            try:
                return await ask(place, offset)
            except FlussError:
                # One bucket that does not answer must not hide the figures of all others.
                return None

        async def commit_times(offsets: Mapping[Place, int]) -> Mapping[Place, int | None]:
            found: dict[Place, int | None] = {}
            missing: dict[Place, int] = {}
            for place, offset in offsets.items():
                key = (table_id, place, offset)
                if key in self._known:
                    self._known.move_to_end(key)
                    found[place] = self._known[key]
                elif self._left > 0:
                    self._left -= 1
                    missing[place] = offset
            if missing:
                for place, committed_ms in (await ask_each(ask_one, missing)).items():
                    if committed_ms is not None:
                        self._remember((table_id, place, missing[place]), committed_ms)
                        found[place] = committed_ms
            return found

        return commit_times

    def _remember(self, key: tuple[int, Place, int], committed_ms: int) -> None:
        self._known[key] = committed_ms
        while len(self._known) > self._kept_max:
            self._known.popitem(last=False)
