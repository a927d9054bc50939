"""One run of the increment's DAG in a process of its own: `one_run.py RUN DIE_AFTER`.

The process dies by SIGKILL when its sink has begun (`begin`) or has written (`write`), as a
worker does that loses its machine.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG

from fluss_orchestrate.airflow import FlussIncrementalScanOperator, ParquetTarget
from tests.airflow_provider.running import run, states


class DyingTarget(ParquetTarget):
    """Kills its process at a chosen point."""

    die_after = ""

    def open(self, client: Any) -> Any:
        sink = super().open(client)
        write = sink.write

        def dying_write(plan: Any, read: Any) -> Any:
            if self.die_after == "begin":
                os.kill(os.getpid(), signal.SIGKILL)
            done = write(plan, read)
            if self.die_after == "write":
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        sink.write = dying_write
        return sink


def main(hour: int, die_after: str) -> None:
    DyingTarget.die_after = die_after
    with DAG("one_run") as dag:
        FlussIncrementalScanOperator(
            task_id="scan",
            fluss_conn_id=os.environ["RUN_CONN_ID"],
            table=os.environ["RUN_TABLE"],
            checkpoint=os.environ["RUN_CHECKPOINT"],
            sink=DyingTarget(os.environ["RUN_SINK"]),
        )
    done = run(dag, logical_date=datetime(2026, 11, 17, hour, tzinfo=UTC))
    assert states(done) == {"scan": "success"}, states(done)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
