"""Rows that nobody flushed when the interpreter exits.

They are flushed within a deadline. If that fails, stderr says how many rows are lost and why, and
the process exits with `LOST_ROWS_STATUS` instead of whatever it would have: Python gives no way to
change the status this late but `os._exit`, so this happens in the very last step, after the streams
and the logging are flushed. Functions that were registered with `atexit` before this module was
imported do not run then. `os._exit`, a fatal signal and `kill -9` leave no chance to do anything.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import logging
import os
import sys
import weakref
from typing import Protocol

from fluss_client.errors import FlussError
from fluss_client.runtime import at_exit

LOST_ROWS_STATUS = 74

_lost: list[str] = []


class Flushable(Protocol):
    """A writer, as far as this module knows it."""

    name: str

    def flush_future(self) -> concurrent.futures.Future[None]: ...
    def rows_pending(self) -> int: ...


def flush_at_exit(writer: Flushable) -> None:
    """Flush the writer at interpreter exit, for as long as it is alive."""
    reference = weakref.ref(writer)

    def hook(seconds: float) -> None:
        living = reference()
        if living is not None:
            _flush(living, seconds)

    forget = at_exit(writer, hook)
    weakref.finalize(writer, forget).atexit = False


def _flush(writer: Flushable, seconds: float) -> None:
    pending = writer.rows_pending()
    try:
        writer.flush_future().result(seconds)
        return
    except concurrent.futures.TimeoutError:
        why = f"no acknowledgement came within {seconds:g} s"
        pending = writer.rows_pending()
    except FlussError as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, the rows are lost and said to be
        why = repr(error)
    rows = f"up to {pending} rows" if pending else "rows"
    text = f"fluss_client: {rows} for {writer.name} are lost at exit: {why}"
    _lost.append(text)
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


@atexit.register
def _force_status() -> None:
    if not _lost:
        return
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(LOST_ROWS_STATUS)


def _forget_losses() -> None:
    _lost.clear()


os.register_at_fork(after_in_child=_forget_losses)
