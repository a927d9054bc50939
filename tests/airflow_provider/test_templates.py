"""Templates that render to nothing, results that cannot be kept, and clusters that differ."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fluss_client import FlussConnection
from fluss_orchestrate.airflow import (
    FlussCheckpointResetOperator,
    FlussIncrementalScanOperator,
    FlussLakeSnapshotSensor,
    FlussOffsetSensor,
    FlussOffsetTrigger,
    FlussPartitionWindowOperator,
    FlussTarget,
    FlussTaskFailedError,
    FlussWriteOperator,
    ParquetTarget,
    fluss_table_asset,
)
from fluss_orchestrate.airflow.scans import until_of
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import apply_tables
from tests.airflow_provider.rows import numbered, numbers_spec
from tests.airflow_provider.running import result_of, run, states

pytestmark = pytest.mark.usefixtures("airflow_home")
EMPTY = "{{ x }}"


def scan(**arguments: Any) -> FlussIncrementalScanOperator:
    arguments.setdefault("sink", ParquetTarget("/nowhere"))
    given = {"task_id": "scan", "table": "a.b", "checkpoint": "c", **arguments}
    return FlussIncrementalScanOperator(**given)


@pytest.mark.parametrize("native", [False, True], ids=["text", "native"])
@pytest.mark.parametrize("value", ["", " ", None])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sink.path", lambda: scan(sink=ParquetTarget(EMPTY))),
        ("sink.fluss_conn_id", lambda: scan(sink=FlussTarget("a.c", EMPTY))),
        ("columns[1]", lambda: scan(columns=["id", EMPTY])),
        ("until", lambda: scan(until=EMPTY)),
        ("rows", lambda: FlussWriteOperator(task_id="w", table="a.b", rows=EMPTY)),
        ("load_id", lambda: FlussWriteOperator(task_id="w", table="a.b", rows=[], load_id=EMPTY)),
        (
            "now",
            lambda: FlussPartitionWindowOperator(task_id="p", table="a.b", unit="day", now=EMPTY),
        ),
        ("covers", lambda: FlussLakeSnapshotSensor(task_id="s", table="a.b", covers=EMPTY)),
    ],
)
def test_a_template_that_renders_to_nothing_is_refused(
    name: str, make: Any, value: Any, native: bool
) -> None:
    from airflow.sdk import DAG

    with DAG("any", render_template_as_native_obj=native):
        task = make()
    with pytest.raises(FlussTaskFailedError, match=rf"template of '{name}'".replace("[", r"\[")):
        task.render_template_fields({"x": value})


def test_rows_of_data_may_hold_empty_texts_and_options_may_be_left_out() -> None:
    from airflow.sdk import DAG

    with DAG("any"):
        task = FlussWriteOperator(task_id="w", table="a.b", rows=[{"id": EMPTY, "word": ""}])
    context: Any = {"x": ""}
    task.render_template_fields(context)
    task.check_not_empty()
    assert task.rows == [{"id": "", "word": ""}]
    for literal in (scan(sink=ParquetTarget("")), scan(table=" ")):
        with pytest.raises(FlussTaskFailedError, match="is empty"):
            literal.check_not_empty()


@pytest.mark.parametrize(
    "make",
    [
        lambda wanted: FlussOffsetSensor(task_id="s", table="a.b", offsets=wanted),
        lambda wanted: FlussLakeSnapshotSensor(task_id="s", table="a.b", covers=wanted),
        lambda wanted: scan(until=wanted),
        lambda wanted: FlussCheckpointResetOperator(
            task_id="s", table="a.b", checkpoint="c", to=wanted
        ),
    ],
    ids=["offsets", "covers", "until", "to"],
)
def test_offsets_by_bucket_are_rendered_to_what_airflow_can_keep(make: Any) -> None:
    """Airflow 3.0 refuses rendered arguments whose keys are no text."""
    from airflow.sdk import DAG

    with DAG("any"):
        task = make({0: 31, 1: "{{ x }}"})
    task.render_template_fields({"x": 7})
    rendered = [getattr(task, name) for name in task.template_fields]
    (found,) = [value for value in rendered if isinstance(value, dict)]
    assert set(found) == {"0", "1"}
    assert until_of(found) == {0: 31, 1: 7}


def test_a_result_that_cannot_be_stored_does_not_move_the_checkpoint(
    embedded_conn_id: str,
) -> None:
    from airflow.sdk import DAG, task

    from tests.airflow_provider.places import connect, drop

    client: FlussConnection = connect(embedded_conn_id)
    spec = numbers_spec("results")
    apply_tables(client, [spec])
    load_rows(client, spec.table, numbered(0, 10), "rows")
    moment = datetime(2026, 11, 17, 3, tzinfo=UTC)

    def build(result: Any) -> Any:
        with DAG("results") as dag:

            @task.fluss_scan(
                fluss_conn_id=embedded_conn_id,
                table=spec.table,
                checkpoint="results",
                rows_as="arrow",
                combine=sum,
            )
            def taken(rows: Any) -> Any:
                return result(rows)

            taken()
        return dag

    failed = run(build(lambda rows: object()), logical_date=moment)
    assert states(failed) == {"taken": "failed"}
    assert FlussCheckpointStore(client).require("results").state.pending is not None
    done = run(build(lambda rows: rows.num_rows), logical_date=moment)
    assert result_of(done, "taken") == 10
    FlussCheckpointStore(client).retire("results")
    drop(client, "results")


def test_watchers_of_a_tables_asset_expect_its_cluster() -> None:
    from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
    from airflow.sdk import AssetWatcher

    triggers: list[Any] = [
        FlussOffsetTrigger(table="a.b"),
        MessageQueueTrigger(scheme="fluss", table="a.b"),
        FlussOffsetTrigger(table="a.b", cluster_alias="other"),
    ]
    for trigger, alias in zip(triggers, ("lake", "lake", "other"), strict=True):
        fluss_table_asset("a.b", cluster_alias="lake", watchers=[AssetWatcher("w", trigger)])
        assert trigger.serialize()[1]["cluster_alias"] == alias
