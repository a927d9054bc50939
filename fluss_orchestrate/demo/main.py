"""`make demo`: provision, write, take increments through a crash, tier, wait, count.

Three rounds of events go into an embedded Fluss. After each one a process of its own takes the
increment to an Iceberg table; in the second round it is killed with SIGKILL twice, once before it
wrote and once between writing and committing, and started again. Fluss's own lake is filled and
waited for. At the end every row is counted in the Parquet files themselves.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fluss_client.errors import ClientError
from fluss_orchestrate.core.lake.catalog import load_lake_table, open_catalog
from fluss_orchestrate.core.lake.tiering import tier
from fluss_orchestrate.core.lake.waiting import wait_for_snapshot_blocking
from fluss_orchestrate.core.provisioning import apply
from fluss_orchestrate.demo import shop
from fluss_orchestrate.demo.proof import Proof, prove

ROUNDS = 3
KILLED_ROUND = 2
SNAPSHOT_TIMEOUT_S = 60.0


@contextmanager
def step(what: str) -> Iterator[Callable[[str], None]]:
    """Say what is being done, and how long it took; the block may add a word."""
    words: list[str] = []
    print(f"  {what} …", end="", flush=True)
    started = time.perf_counter()
    yield words.append
    said = f" {'; '.join(words)}" if words else ""
    print(f"{said} ({time.perf_counter() - started:.1f} s)", flush=True)


def run_process(directory: Path, number: int, die_in: str = "") -> int | None:
    """Run the increment in a process of its own; its rows, or None when it was killed."""
    command = [sys.executable, "-m", "fluss_orchestrate.demo.shop", "increment"]
    command += [str(directory), str(number), "--die-in", die_in]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode == -signal.SIGKILL:
        return None
    if ended.returncode != 0:
        raise ClientError(f"the increment of round {number} failed: see above")
    return int(ended.stdout)


def write_round(directory: Path, number: int, rows: int) -> None:
    """New events arrive."""
    with shop.connect(directory) as connection:
        writer = connection.get_table(shop.EVENTS).result().new_append().create_writer()
        writer.write_arrow(shop.make_events((number - 1) * rows, rows, seed=number))
        writer.flush().result()


def take_round(directory: Path, number: int) -> None:
    """Take the increment, through crashes in the round that has them."""
    if number == KILLED_ROUND:
        for stage in ("read", "sink-and-commit"):
            with step(f"round {number}: increment, killed at '{stage}'") as say:
                if run_process(directory, number, stage) is not None:
                    raise ClientError("the process should have been killed")
                say("gone")
    with step(f"round {number}: increment to Iceberg") as say:
        say(f"{run_process(directory, number):,} rows")


def tier_round(directory: Path, number: int) -> None:
    """Fill Fluss's own lake and wait until it holds everything that is there now."""
    with shop.connect(directory) as connection:
        with step(f"round {number}: tier into the lake") as say:
            say(f"{tier(connection, shop.EVENTS, allow_tiering=True).rows:,} rows")
        with step(f"round {number}: wait for the lake snapshot") as say:
            snapshot = wait_for_snapshot_blocking(
                connection, shop.EVENTS, "latest", timeout_s=SNAPSHOT_TIMEOUT_S
            )
            say(f"snapshot {snapshot.snapshot_id}")


def prove_all(directory: Path, sent: int) -> list[Proof]:
    """Count the rows in the files of the analysts' table and of the lake."""
    sink = open_catalog(shop.catalog(directory)).load_table(shop.SINK)
    with shop.connect(directory) as connection:
        info = connection.get_table(shop.EVENTS).result().get_table_info()
        lake = load_lake_table(info, connection.config.resolved_alias())
    return [
        prove(where, [task.file.file_path for task in table.scan().plan_files()], sent)
        for where, table in (("increments in Iceberg", sink), ("Fluss's lake", lake))
    ]


def demo(directory: Path, rows: int) -> bool:
    """All of it; whether every row arrived exactly once."""
    print(f"A shop on an embedded Fluss in {directory}")
    with shop.connect(directory) as connection, step("provision the tables") as say:
        say(f"{len(apply(connection, shop.specs()))} changes")
    for number in range(1, ROUNDS + 1):
        with step(f"round {number}: {rows:,} events arrive"):
            write_round(directory, number, rows)
        take_round(directory, number)
        tier_round(directory, number)
    proofs = prove_all(directory, ROUNDS * rows)
    for proof in proofs:
        print(f"  {proof}")
    holds = all(proof.holds for proof in proofs)
    print("every row exactly once" if holds else "NOT every row arrived exactly once")
    return holds


def main() -> None:
    parser = argparse.ArgumentParser(prog="fluss_orchestrate.demo", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="events per round")
    parser.add_argument("--keep", type=Path, help="work in this new directory and keep it")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=False)
        sys.exit(0 if demo(options.keep, options.rows) else 1)
    with tempfile.TemporaryDirectory(prefix="fluss-demo-") as folder:
        sys.exit(0 if demo(Path(folder), options.rows) else 1)


if __name__ == "__main__":
    main()
