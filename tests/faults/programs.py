"""Programs that tests start in processes of their own, to be stopped, starved or misled.

python -m tests.faults.programs NAME JSON
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
from typing import Any

import pyarrow as pa

import fluss_client as fluss
from fluss_client.errors import FlussError
from tests.waiting import Deadline

BATCH = 25


def _table(settings: dict[str, Any], path: str) -> tuple[fluss.FlussConnection, fluss.FlussTable]:
    connection = fluss.FlussConnection.create(fluss.Config(settings)).result()
    return connection, connection.get_table(fluss.TablePath.parse(path)).result()


def write(settings: dict[str, Any], path: str, first: int) -> None:
    """Append until stopped; how far it is acknowledged is told, "ready" after the first batch.

    SIGTERM leaves orderly, as a task runner's handler does.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _, table = _table(settings, path)
    writer = table.new_append().create_writer()
    at = first
    while True:
        ids = list(range(at, at + BATCH))
        writer.write_arrow(pa.table({"id": ids}))
        if (at - first) % (BATCH * 3) == 0:
            writer.flush().result()
            print("ready" if at == first else at + BATCH, flush=True)
        at += BATCH


def scan(settings: dict[str, Any], path: str) -> None:
    """Poll until stopped."""
    _, table = _table(settings, path)
    scanner = table.new_scan().create_log_scanner().result()
    scanner.subscribe_buckets(dict.fromkeys(range(table.get_table_info().num_buckets), -2))
    print("ready", flush=True)
    while True:
        scanner.poll(100)


def fill_disk(settings: dict[str, Any], path: str, bytes_max: int) -> None:
    """Append until the disk is full; acknowledged batches are told, then the error."""
    connection, table = _table(settings, path)
    writer = table.new_append().create_writer()
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))
    at = 0
    try:
        while True:
            batch = pa.table({"id": list(range(at, at + BATCH)), "text": ["x" * 4_000] * BATCH})
            writer.write_arrow(batch)
            writer.flush().result()
            at += BATCH
            print(at, flush=True)
    except FlussError as error:
        print(json.dumps([type(error).__name__, error.message]), flush=True)
    deadline = Deadline(30)
    with contextlib.suppress(FlussError):
        connection.close()
    print(json.dumps(["closed", not deadline.has_passed]), flush=True)


PROGRAMS = {"write": write, "scan": scan, "fill_disk": fill_disk}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*json.loads(sys.argv[2]))
