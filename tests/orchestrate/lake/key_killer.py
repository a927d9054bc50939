"""Processes that tier or maintain a key table, and of which some kill themselves at a stage."""

from __future__ import annotations

import os
import signal
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.lake import MaintenanceSettings, data_files, maintain_lake, tiering
from fluss_orchestrate.core.lake.known_lake import KnownLake
from fluss_orchestrate.core.lake.maintenance import expiry, run
from tests import forked
from tests.waiting import scaled

TIERING = ("writing", "prepared", "between", "told")
MAINTENANCE = ("compacting", "compacted", "compacted-between", "expired")
STAGES = TIERING + MAINTENANCE
TIER, MAINTAIN = "tier", "maintain"
"""What a process does that is not to die."""
END_S = 300.0


def begin(stage: str, address: str, table: str) -> BaseProcess:
    """Start a process that works on a table and dies at a stage, or does not die."""
    return forked.start(main, stage, address, table)


def died(process: BaseProcess) -> bool:
    """Wait for the end of a process, and return whether it killed itself.

    A stage that is not reached, because there was nothing to do, ends without a kill.
    """
    process.join(scaled(END_S))
    assert process.exitcode in (-signal.SIGKILL, 0), process.exitcode
    return process.exitcode != 0


def die(*_: Any, **__: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def after(owner: Any, name: str) -> None:
    """Let a function do its work, and die then."""
    real = getattr(owner, name)

    def patched(*args: Any, **more: Any) -> None:
        real(*args, **more)
        die()

    setattr(owner, name, patched)


def patch(stage: str) -> None:
    """Make this process die at a stage."""
    if stage in ("writing", "compacting"):
        after(data_files.DataFileWriter, "_flush")
    elif stage == "prepared":
        tiering.commit_row_delta = tiering.commit_rewrite = die  # type: ignore[assignment]
    elif stage in ("between", "compacted-between"):
        KnownLake.tell = die  # type: ignore[method-assign]
    elif stage == "told":
        after(KnownLake, "tell")
    elif stage == "compacted":
        run.commit_rewrite = die  # type: ignore[assignment]
    elif stage == "expired":
        after(expiry, "remove_snapshots")


def main(stage: str, address: str, table: str) -> None:
    patch(stage)
    with FlussConnection.create(Config({"bootstrap.servers": address})).result() as connection:
        if stage in (TIER, *TIERING):
            tiering.tier_table(connection, table, allow_tiering=True)
        else:
            settings = MaintenanceSettings(snapshot_age_ms=0, keep_snapshots=1)
            maintain_lake(connection, table, settings=settings)
