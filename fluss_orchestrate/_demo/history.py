"""The shop's past, loaded by Spark: Parquet files, two spark-submits at once, two receipts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from fluss_client import Config
from fluss_orchestrate._demo import shop
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
