"""A worker that tiers the tables that the coordinator assigns to it.

The coordinator assigns each table to one worker at a time, and assigns it again if the worker sends
no heartbeat for two minutes. So the worker sends heartbeats in the background, and asks once more
right before each commit: it does not commit to a table that was assigned to another worker. The
coordinator does not check commits themselves; `tiering` makes sure that two rounds never add the
same rows.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

from fluss_client import FlussConnection, TieringTable
from fluss_client.engine import backend_of, run_blocking, runtime
from fluss_client.errors import FlussError
from fluss_orchestrate.core.lake.errors import TieringFencedError, TieringNotAllowedError
from fluss_orchestrate.core.lake.tiering import TieringRound, write_ranges
from fluss_orchestrate.core.lake.tiering_files import RangeWriter
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.deprecated import accepts_old_parameters

log = logging.getLogger(__name__)
RENEW_INTERVAL_S = 30.0
IDLE_INTERVAL_S = 5.0


class TieringWorker:
    """Tiers tables one after the other, as the coordinator assigns them. Blocks.

    Log tables and key tables. Any number of workers may run. `run` gives the receipt of each table
    that it tiered to `on_receipt`; `write` says who writes the files of a round.
    """

    @accepts_old_parameters("TieringWorker")
    def __init__(
        self,
        connection: FlussConnection,
        *,
        allow_tiering: bool = False,
        catalog: Mapping[str, str] | None = None,
        renew_interval_s: float = RENEW_INTERVAL_S,
        idle_interval_s: float = IDLE_INTERVAL_S,
        on_receipt: Callable[[Receipt], None] = lambda _: None,
        write: RangeWriter = write_ranges,
    ) -> None:
        if not allow_tiering:
            raise TieringNotAllowedError
        self._connection = connection
        self._catalog = catalog
        self._renew_interval_s = renew_interval_s
        self._idle_interval_s = idle_interval_s
        self._on_receipt = on_receipt
        self._write = write
        self._stop = threading.Event()

    def run(self) -> None:
        """Tier tables until another thread calls `stop`; return failed ones to the coordinator."""
        while not self._stop.is_set():
            try:
                receipt = self.run_once()
            except FlussError as error:
                log.error("tiering failed and will be tried again: %s", error)
                receipt = None
            if receipt is not None:
                self._on_receipt(receipt)
            else:
                self._stop.wait(self._idle_interval_s)

    def stop(self) -> None:
        """Let `run` return after the current table."""
        self._stop.set()

    def run_once(self) -> Receipt | None:
        """Take one table and tier it; None if there was none.

        An error is raised, and reported to the coordinator, which assigns the table again.
        """
        given = self._beat(request=True)
        if given is None:
            return None
        lease = _Lease(self._connection, given, self._renew_interval_s)
        try:
            with lease:
                receipt = self._tier(given, lease)
        except BaseException as error:
            if not isinstance(error, TieringFencedError):
                self._beat(failed=given)
            raise
        self._beat(finished=given)
        return receipt

    def _tier(self, given: TieringTable, lease: _Lease) -> Receipt:
        backend = backend_of(self._connection)
        assert given.table_path is not None
        info = run_blocking(backend.get_table_info(given.table_path))
        if info.table_id != given.table_id:
            raise TieringFencedError(given.table_path, "it was dropped and created again")
        return TieringRound(
            self._connection, info, self._catalog, lease.confirm, write=self._write
        ).run()

    def _beat(
        self,
        *,
        request: bool = False,
        finished: TieringTable | None = None,
        failed: TieringTable | None = None,
    ) -> TieringTable | None:
        answer = run_blocking(
            backend_of(self._connection).lake_tiering_heartbeat(
                (),
                () if finished is None else (finished,),
                () if failed is None else (failed,),
                request,
                (),
            )
        )
        for error in answer.errors.values():
            log.warning("the coordinator did not take a tiering report: %s", error)
        return answer.table


class _Lease:
    """A table that was assigned to this worker, renewed in the background while it is tiered."""

    def __init__(self, connection: FlussConnection, given: TieringTable, interval_s: float) -> None:
        self._connection = connection
        self._given = given
        self._interval_s = interval_s
        self._lost: FlussError | None = None
        self._renewing: asyncio.Task[None] | None = None

    def __enter__(self) -> _Lease:
        async def begin() -> asyncio.Task[None]:
            return asyncio.get_running_loop().create_task(self._renew())

        self._renewing = run_blocking(begin())
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task = self._renewing
        if task is not None:
            runtime().loop.call_soon_threadsafe(task.cancel)

    def confirm(self) -> None:
        """Raise if the coordinator has assigned the table to another worker."""
        run_blocking(self._beat())
        if self._lost is not None:
            assert self._given.table_path is not None
            raise TieringFencedError(
                self._given.table_path,
                f"the coordinator took it back ({self._lost}); nothing more was committed",
            ) from self._lost

    async def _renew(self) -> None:
        while self._lost is None:
            await asyncio.sleep(self._interval_s)
            try:
                await self._beat()
            except FlussError as error:
                # One missing heartbeat does no harm; the next one may arrive.
                log.warning("renewing %s: %s", self._given.table_path, error)

    async def _beat(self) -> None:
        answer = await backend_of(self._connection).lake_tiering_heartbeat(
            (self._given,), (), (), False, ()
        )
        error = answer.errors.get(self._given.table_id)
        if error is not None:
            self._lost = error
