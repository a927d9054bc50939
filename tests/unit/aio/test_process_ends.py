"""Forks, and rows that nobody flushed when the interpreter exits: in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fluss_client.aio.writing.writer_core import LOST_ROWS_STATUS

ROOT = Path(__file__).parents[3]

START = """
import concurrent.futures, os, sys
import pyarrow as pa
from fluss_client import runtime
from fluss_client.aio.writing.writer import AppendWriter
from fluss_client.config import Config
from fluss_client.errors import *
from tests.unit.aio.fake_backend import FakeBackend, Fault, table_of

runtime.EXIT_DEADLINE_S = 0.2
backend = FakeBackend(table_of(pa.schema([("id", pa.int32())])))
take = backend._take
def told(node, write):
    print("written", write.payload.row_count, flush=True)
    return take(node, write)
backend._take = told
writer = AppendWriter(backend, backend.table, Config({"writer.batch-timeout-ms": 3600000}))
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", START + script],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_rows_that_nobody_flushed_are_written_at_exit() -> None:
    done = run("for at in range(5): writer.append((at,))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "written 5\n", "")


def test_rows_in_a_writer_that_nobody_holds_are_written_too() -> None:
    done = run("writer.append((1,)); del writer")
    assert (done.returncode, done.stdout, done.stderr) == (0, "written 1\n", "")


def test_an_exception_of_the_program_keeps_its_status_and_the_rows() -> None:
    done = run("writer.append((1,)); raise SystemExit(3)")
    assert (done.returncode, done.stdout) == (3, "written 1\n")


def test_rows_that_cannot_be_written_in_time_are_counted_and_change_the_status() -> None:
    done = run(
        "backend.script = lambda write: Fault(NetworkError('down'))\n"
        "for at in range(5): writer.append((at,))\n"
        "print('the program has ended')"
    )
    assert done.returncode == LOST_ROWS_STATUS
    assert "up to 5 rows for db.t are lost at exit: no acknowledgement" in done.stderr
    assert done.stdout == "the program has ended\n"


def test_rows_that_were_refused_and_never_asked_about_change_the_status() -> None:
    done = run(
        "backend.script = lambda write: Fault(RecordTooLargeError('too large'))\n"
        "future = writer.append((1,)).future()\n"
        "concurrent.futures.wait([future])"
    )
    assert done.returncode == LOST_ROWS_STATUS
    assert "too large" in done.stderr


def test_an_error_that_was_told_does_not_change_the_status() -> None:
    done = run(
        "backend.script = lambda write: Fault(RecordTooLargeError('too large'))\n"
        "handle = writer.append((1,))\n"
        "try:\n"
        "    handle.future().result()\n"
        "except WriteError as error:\n"
        "    print('told:', error)"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "too large" in done.stdout


def test_a_writer_cannot_be_used_in_a_forked_child_which_can_make_its_own() -> None:
    done = run(
        """
writer.append((1,))
handle = writer.append((2,))
pid = os.fork()
if pid == 0:
    for call in (lambda: writer.append((3,)), writer.flush_future, handle.future,
                 lambda: writer.write_arrow_batch(pa.record_batch({"id": [1]}))):
        try:
            call()
            os._exit(1)
        except ForkedError:
            pass
    own = AppendWriter(backend, backend.table, Config())
    own.append((4,))
    own.flush_future().result()
    os._exit(0 if backend.rows() == [(4,)] else 2)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
writer.flush_future().result()
assert backend.rows() == [(1,), (2,)], backend.rows()
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "written 1\nwritten 2\n"
