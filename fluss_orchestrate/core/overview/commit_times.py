"""Commit times of batches, kept between passes: the batch at an offset never changes.

A pass asks for a bounded number of them. What was left out is unknown in that pass, and its figures
say so; later passes ask for the rest.
"""

from __future__ import annotations

from collections import OrderedDict

from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import backend_of
from fluss_client.errors import FlussError
from fluss_orchestrate.core.checkpoints.report import CommitTime, probing
from fluss_orchestrate.core.incremental.planning.observation import TableView
from fluss_orchestrate.core.incremental.time.timestamps import Prober
from fluss_orchestrate.core.plan import Place

PROBES_PER_PASS_MAX = 2_000
TIMES_KEPT_MAX = 200_000


class CommitTimes:
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

    def of(self, core: AsyncConnection, view: TableView) -> CommitTime:
        """Return the function that finds the commit times of a table's batches."""
        ask = probing(Prober(backend_of(core), core.config, view.info))
        table_id = view.info.table_id

        async def commit_time(place: Place, offset: int) -> int | None:
            key = (table_id, place, offset)
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
            if self._left <= 0:
                return None
            self._left -= 1
            try:
                found = await ask(place, offset)
            except FlussError:
                # One bucket that does not answer must not hide the figures of all others.
                return None
            if found is not None:
                self._known[key] = found
                while len(self._known) > self._kept_max:
                    self._known.popitem(last=False)
            return found

        return commit_time
