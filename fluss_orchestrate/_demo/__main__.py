"""`make demo`: a small shop, from nothing to a proof.

Spark loads the shop's past. Then come three rounds: events arrive, an Airflow DAG takes what is new
to Iceberg and waits for Fluss's lake, and Dagster makes the assets downstream. The second round is
killed with SIGKILL twice, before it wrote and between writing and committing, and started again.
A SQL table mirrors the shop's customers. At the end every row is counted in the Parquet files
themselves, and the mirror is compared with what the shop has sold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from fluss_client import Config, TablePath
from fluss_client.errors import ClientError, FlussError
from fluss_client.testing import LocalCluster
from fluss_orchestrate._demo import shop
from fluss_orchestrate._demo.airflow_round import STAGES
from fluss_orchestrate._demo.processes import Server
from fluss_orchestrate._demo.report import Proof, Timeline, prove, write_report
from fluss_orchestrate.core.lake.catalog import load_lake_table, open_catalog
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import apply_tables
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.spark_submit.job import submit_load
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, files
from fluss_orchestrate.core.spark_submit.submit import SparkSubmit

CONF = {
    "spark.ui.enabled": "false",
    # For a load of seconds, what the second compiler costs never comes back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def write_history(place: shop.Shop, orders_per_day: int) -> int:
    """Files as an older system would leave them; how many orders they hold."""
    for number, day in enumerate(shop.HISTORY_DAYS):
        orders = shop.make_orders(number * orders_per_day, orders_per_day, day)
        _write(orders, place.folder / "history" / "orders" / f"{day}.parquet")
        _write(shop.make_lines(orders), place.folder / "history" / "order_lines" / f"{day}.parquet")
    return orders_per_day * len(shop.HISTORY_DAYS)


def _write(rows: pa.Table, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)


def load_history(place: shop.Shop) -> list[Receipt]:
    """Load both tables. Submitted again after a crash, it goes on where it was."""

    def load(table: str) -> Receipt:
        name = table.partition(".")[2]
        source = files("parquet", str(place.folder / "history" / name / "*.parquet"))
        spec = BulkLoadSpec(source, table, load_id=f"demo/history/{name}")
        submit = SparkSubmit(master="local[1]", conf=CONF)
        with (place.logs / f"spark-{name}.log").open("w") as log:
            return submit_load(submit, spec, Config(place.settings()), on_log=_to(log))

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(load, (shop.ORDERS, shop.LINES)))


def _to(log: TextIO) -> Callable[[str], None]:
    return lambda line: print(line, file=log, flush=True)


ROUNDS = 3
KILLED_ROUND = 2
HISTORY = "history"


def begin(place: shop.Shop, timeline: Timeline, orders: int) -> int:
    """Tables, and the past by Spark; how many orders there are now."""
    with (
        timeline.step("set-up", "provision tables and partitions") as step,
        place.connect() as connection,
    ):
        step.said = f"{len(apply_tables(connection, shop.specs()))} changes"
    timeline.sample(place)
    with timeline.step(HISTORY, "bulk load by spark-submit") as step:
        made = write_history(place, orders)
        receipts = load_history(place)
        step.said = f"{sum(receipt.rows for receipt in receipts):,} rows"
    for receipt in receipts:
        timeline.add_rows(HISTORY, str(receipt.table.path), receipt.rows)
    timeline.sample(place)
    return made


def arrive(place: shop.Shop, timeline: Timeline, number: int, first: int, count: int) -> pa.Table:
    """New events: orders and lines are appended, customers upserted; what customers bought."""
    phase = f"round {number}"
    orders = shop.make_orders(first, count, shop.DAY_OF_ROUND[number])
    rows = {
        shop.ORDERS: orders,
        shop.LINES: shop.make_lines(orders),
        shop.CUSTOMERS: shop.make_customers(orders),
    }
    with timeline.step(phase, "events arrive") as step, place.connect() as connection:
        for table, new in rows.items():
            load_rows(connection, table, new, f"demo/round-{number}")
            timeline.add_rows(phase, table, new.num_rows)
        step.said = f"{sum(new.num_rows for new in rows.values()):,} rows"
    timeline.sample(place)
    return rows[shop.CUSTOMERS]


def take(
    place: shop.Shop, timeline: Timeline, airflow: Server, dagster: Server, number: int
) -> None:
    """Airflow takes increment and mirror, through crashes in the round of these; then Dagster."""
    phase = f"round {number}"
    if number == KILLED_ROUND:
        for stage in STAGES:
            with timeline.step(phase, "Airflow, killed") as step:
                if airflow.run(str(number), "--die-in", stage):
                    raise ClientError("the run should have been killed")
                step.said = f"gone at '{stage}'"
            timeline.sample(place)
    with timeline.step(phase, "Airflow: increment and mirror, then the lake"):
        airflow.run(str(number))
    timeline.sample(place)
    with timeline.step(phase, "Dagster: assets downstream"):
        dagster.run(str(number))


def prove_all(place: shop.Shop, orders: int) -> list[Proof]:
    """Count the rows in the files of the analysts' tables and of Fluss's lake."""
    proofs = []
    catalog = open_catalog(place.catalog())
    with place.connect() as connection:
        admin = connection.get_admin().result()
        for table, column, sent in (
            (shop.ORDERS, "order_id", orders),
            (shop.LINES, "line_id", orders * shop.LINES_PER_ORDER),
        ):
            name = table.partition(".")[2]
            info = admin.get_table_info(TablePath.parse(table)).result()
            lake = load_lake_table(info, shop.ALIAS)
            for where, held in (
                (f"{name} in the analysts' Iceberg table", catalog.load_table(f"analytics.{name}")),
                (f"{name} in Fluss's own lake", lake),
            ):
                files = [task.file.file_path for task in held.scan().plan_files()]
                proofs.append(prove(where, files, column, sent))
    return proofs


def prove_mirror(place: shop.Shop, sold: pa.Table) -> Proof:
    """Compare the rows of the mirror with the last row of each customer and day that was sent."""
    import sqlalchemy

    last = {(row["customer_id"], row["day"]): row for row in sold.to_pylist()}
    found: Counter[tuple[int, str]] = Counter()
    wrong = 0
    engine = sqlalchemy.create_engine(place.warehouse_url)
    try:
        with engine.connect() as connection:
            query = sqlalchemy.text("SELECT customer_id, day, orders, spent FROM customers")
            for number, day, orders, spent in connection.execute(query):
                found[number, day] += 1
                sent = last.get((number, day))
                same = sent is not None and sent["orders"] == orders
                if sent is None or not same or round(float(spent), 2) != float(sent["spent"]):
                    wrong += 1
    finally:
        engine.dispose()
    missing = len(last.keys() - found.keys()) + wrong
    doubled = sum(count > 1 for count in found.values())
    where = "customers in the analysts' SQL table (mirror)"
    return Proof(where, len(last), sum(found.values()), missing, doubled)


def demo(place: shop.Shop, where: str, orders: int, console: Console, report: Path) -> bool:
    """All of it; whether every row arrived exactly once."""
    timeline = Timeline(console)
    console.print(f"A shop on Fluss: {where}")
    with Server(place, "airflow_round") as airflow, Server(place, "dagster_defs") as dagster:
        made = begin(place, timeline, orders)
        sold = []
        for number in range(1, ROUNDS + 1):
            sold.append(arrive(place, timeline, number, made, orders))
            made += orders
            take(place, timeline, airflow, dagster, number)
    proofs = [*prove_all(place, made), prove_mirror(place, pa.concat_tables(sold))]
    write_report(report, where, timeline, proofs)
    console.print(_proof_table(proofs))
    console.print(f"report: {report}", soft_wrap=True)
    holds = all(proof.holds for proof in proofs)
    console.print("every row exactly once" if holds else "NOT every row arrived exactly once")
    return holds


def _proof_table(proofs: list[Proof]) -> Table:
    table = Table("table")
    for name in ("sent", "found", "missing", "doubled"):
        table.add_column(name, justify="right")
    for p in proofs:
        table.add_row(p.where, *(f"{n:,}" for n in (p.sent, p.rows, p.missing, p.doubled)))
    return table


@contextmanager
def fluss(place: shop.Shop, cluster: bool) -> Iterator[str]:
    """The Fluss of the demo, and a word for it; a cluster is started here and stopped again."""
    if not cluster:
        place.set_up(None)
        yield f"embedded in {place.folder}"
        return
    options = {"tablet_servers": 1, "lake": "iceberg"}
    with LocalCluster(place.folder / "cluster", **options) as running:  # type: ignore[arg-type]
        place.set_up(running.info.bootstrap_servers)
        yield f"a real cluster at {running.info.bootstrap_servers}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="fluss-orchestrate demo --", description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000, help="orders per round and day")
    parser.add_argument("--keep", type=Path, help="work in this new directory and keep it")
    parser.add_argument("--report", type=Path, help="write the report to this file")
    parser.add_argument("--cluster", action="store_true", help="start and use a real cluster")
    options = parser.parse_args()
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="fluss-demo-") as temporary:
        folder: Path = options.keep or Path(temporary)
        if options.keep is not None:
            folder.mkdir(parents=True, exist_ok=False)
        place = shop.Shop(folder.absolute())
        try:
            with fluss(place, options.cluster) as where:
                report: Path = options.report or place.folder / "report.html"
                holds = demo(place, where, options.rows, console, report.absolute())
        except FlussError as error:
            sys.exit(f"error: {error}")
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
