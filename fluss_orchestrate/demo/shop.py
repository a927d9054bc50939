"""A small shop: its table, its events, and the job that takes them to the lakehouse.

Run as a module it is one process of the demo, so that it can be killed like a real task:

    python -m fluss_orchestrate.demo.shop increment DIRECTORY ROUND [--die-in STAGE]
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from fluss_client import Config, FlussConnection, TablePath
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.provisioning import TableSpec, load_specs
from fluss_orchestrate.core.sinks import IcebergSink, ReadPlan, SinkResult

EVENTS = TablePath("shop", "events")
SINK = "analytics.events"
CHECKPOINT = "shop-events-to-analytics"
KINDS = np.array(["view", "click", "cart", "order"])

SPECS = """
tables:
  - table: shop.events
    comment: what happens in the shop
    columns:
      event_id: bigint not null
      at: timestamp_ltz(6)
      customer: int
      kind: string
      amount: decimal(10,2)
    buckets: 4
    lake: true
"""


def specs() -> list[TableSpec]:
    """The tables of the shop."""
    return load_specs(SPECS)


def connect(directory: Path) -> FlussConnection:
    """The shop's own embedded Fluss."""
    settings = {"bootstrap.servers": f"embedded:{directory / 'fluss'}", "cluster.alias": "demo"}
    return FlussConnection.create(Config(settings)).result()


def catalog(directory: Path) -> dict[str, str]:
    """The analysts' Iceberg catalog, apart from Fluss's own lake."""
    home = directory / "analytics"
    home.mkdir(parents=True, exist_ok=True)
    return {
        "name": "analytics",
        "type": "sql",
        "uri": f"sqlite:///{home / 'catalog.db'}",
        "warehouse": f"file://{home}",
    }


def make_events(first_id: int, count: int, seed: int) -> pa.Table:
    """Events with rising ids."""
    random = np.random.default_rng(seed)
    ids = np.arange(first_id, first_id + count, dtype=np.int64)
    euros = random.integers(100, 90_000, count) / 100
    return pa.table(
        {
            "event_id": ids,
            "at": pa.array(1_790_000_000_000_000 + ids * 250_000, pa.timestamp("us", "UTC")),
            "customer": pa.array(random.integers(1, 5_000, count), pa.int32()),
            "kind": KINDS[random.integers(0, len(KINDS), count)],
            "amount": pa.array(euros, pa.float64()).cast(pa.decimal128(10, 2)),
        }
    )


class DyingSink:
    """A sink whose process is killed at a chosen moment, as a machine would be."""

    exactly_once = True

    def __init__(self, sink: IcebergSink, die_in: str) -> None:
        self._sink = sink
        self._die_in = die_in

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        return self._sink.already_done(plan)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        self._maybe("read")
        done = self._sink.write(plan, read)
        self._maybe("sink-and-commit")
        return done

    def _maybe(self, stage: str) -> None:
        if stage == self._die_in:
            os.kill(os.getpid(), signal.SIGKILL)


def increment(directory: Path, round_number: int, die_in: str = "") -> int:
    """Take what is new to the analysts' table; returns the rows of this round."""
    with connect(directory) as connection:
        scan = IncrementalScan(connection, EVENTS, CHECKPOINT)
        sink = DyingSink(IcebergSink(catalog(directory), SINK), die_in)
        return run_increment(scan, sink, f"demo/increment/round-{round_number}").rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="fluss_orchestrate.demo.shop", description=__doc__)
    parser.add_argument("step", choices=["increment"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("round", type=int)
    parser.add_argument("--die-in", default="", choices=["", "read", "sink-and-commit"])
    options = parser.parse_args()
    steps: dict[str, Callable[[Path, int, str], int]] = {"increment": increment}
    print(steps[options.step](options.directory, options.round, options.die_in))


if __name__ == "__main__":
    main()
