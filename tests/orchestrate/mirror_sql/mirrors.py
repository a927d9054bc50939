"""A mirror of a model's table, compared with the model after every run."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from fluss_client import FlussConnection
from fluss_client.errors import FlussError
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.job import JobResult
from fluss_orchestrate.core.mirror.table import mirror_scan, mirror_table
from fluss_orchestrate.core.sinks import FlussTableSink, SqlSink
from tests.contract.tables import Tables
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.mirror_sql.keyed_model import COLUMNS, KeyedModel, sorted_rows

MirrorSinks = SqlSink | FlussTableSink


def sql_mirror(url: str) -> SqlSink:
    """A mirror in the table `Copy` of a database."""
    return SqlSink(url, "Copy", schema_policy="add_columns", form="mirror")


def fluss_mirror(tables: Tables, model: KeyedModel, buckets: int) -> FlussTableSink:
    """A mirror in a new Fluss table with as many partitions as its source, and other buckets."""
    made = tables.create(
        COLUMNS,
        model.key,
        buckets=buckets,
        partition_keys=["day"] if model.partitioned else None,
        bucket_keys=["id"],
    )
    return FlussTableSink(
        tables.connection,
        made.get_table_path(),
        schema_policy="add_columns",
        create_partitions=True,
        ledger_replicas=1,
        form="mirror",
    )


def check_mirror(sink: MirrorSinks, name: str, model: KeyedModel) -> bool:
    """Compare a mirror with its model at its own position; False while it has none."""
    arrow = model.table.arrow_schema
    for count in range(len(COLUMNS), len(arrow.names) + 1):
        # A run has brought some of the columns so far, the first ones.
        held = pa.schema(list(arrow)[: len(arrow.names) + len(COLUMNS) - count])
        try:
            with sink.read_mirror(name, held) as found:
                if found is None:
                    return False
                position, rows = found.position, found.rows.read_all().to_pylist()
            break
        except (FlussError, KeyError):
            if len(held) == len(COLUMNS):
                raise
    given = [dict.fromkeys(arrow.names) | row for row in rows]
    held_rows = sorted_rows([tuple(row[n] for n in arrow.names) for row in given])
    assert held_rows == model.expected(position)
    return True


class Mirror:
    """A mirror that is run and reset by a test."""

    def __init__(self, model: KeyedModel, sink: MirrorSinks, connection: FlussConnection) -> None:
        self.model = model
        self.sink = sink
        self.store = CheckpointStore(MemoryEventLog())
        self.connection = connection
        self.runs = 0

    def run(self, **options: Any) -> JobResult:
        self.runs += 1
        done = mirror_table(
            self.connection,
            self.model.path,
            self.sink,
            options.pop("run_key", f"run-{self.runs}"),
            checkpoint="mirror",
            store=self.store,
            scan_options={"settle_ms": 0},
            **options,
        )
        assert check_mirror(self.sink, "mirror", self.model)
        return done

    def reset(self) -> None:
        scan = mirror_scan(self.connection, self.model.path, "mirror", store=self.store)
        scan.reset("start", "a test", abandon_pending=True)


def run_program(rng: random.Random, model: KeyedModel, mirror: Mirror, steps: int) -> None:
    """Change the table and run the mirror by turns, with replays and resets."""
    for _ in range(rng.randrange(4)):
        model.step()
    mirror.run()
    for _ in range(steps):
        kind = rng.random()
        if kind < 0.55:
            model.step()
        elif kind < 0.9:
            mirror.run(max_offsets=rng.choice([None, rng.randrange(1, 12)]))
        elif kind < 0.95:
            mirror.run(run_key=f"run-{rng.randrange(1, mirror.runs + 1)}")
        else:
            mirror.reset()
            mirror.run()
    mirror.run()
    # Without a limit, the mirror has all that was written.
    with mirror.sink.read_mirror("mirror", pa.schema([("id", pa.int64())])) as found:
        assert found is not None
        assert found.rows.read_all().num_rows == sum(
            len(rows)
            for (partition_id, _), rows in model.rows.items()
            if partition_id in model.partition_ids
        )
