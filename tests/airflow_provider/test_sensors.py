"""Sensors, poking and deferred: they wait for what was meant at their first look."""

from __future__ import annotations

import pkgutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fluss_client import FlussConnection
from fluss_client.model.table import TablePath
from fluss_orchestrate.core import conditions
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.conditions import holds
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from tests.airflow_provider.rows import numbered, numbers_spec
from tests.airflow_provider.running import result_of, run, states
from tests.waiting import WAIT_S, scaled

pytestmark = pytest.mark.usefixtures("airflow_home")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Do something after a sensor's first look, on another thread; its failure is the test's."""
    threads: list[threading.Thread] = []
    failures: list[BaseException] = []
    looked = threading.Event()

    def looking(*given: Any) -> Any:
        try:
            return holds(*given)
        finally:
            looked.set()

    monkeypatch.setattr(conditions, "holds", looking)

    def begin(work: Callable[[], Any]) -> None:
        looked.clear()

        def main() -> None:
            assert looked.wait(scaled(WAIT_S)), "no sensor has looked"
            try:
                work()
            except BaseException as error:
                failures.append(error)
                raise

        threads.append(threading.Thread(target=main))
        threads[-1].start()

    yield begin
    for thread in threads:
        thread.join()
    assert not failures


def sense(sensor: str, dag_id: str, **arguments: Any) -> Any:
    """Run one sensor in a DAG of its own; what it gave."""
    from airflow.sdk import DAG

    import fluss_orchestrate.airflow as provider

    with DAG(dag_id) as dag:
        getattr(provider, sensor)(
            task_id="wait", timeout=scaled(WAIT_S), poke_interval=0.2, **arguments
        )
    done = run(dag)
    assert states(done) == {"wait": "success"}
    return result_of(done, "wait")


@pytest.mark.parametrize("deferrable", [False, True], ids=["poke", "deferred"])
def test_tables_and_partitions(
    conn_id: str,
    client: FlussConnection,
    database: str,
    later: Callable[[Callable[[], Any]], None],
    deferrable: bool,
) -> None:
    spec = TableSpec.from_mapping(
        {
            "table": f"{database}.days",
            "columns": {"id": "bigint", "day": "string not null"},
            "partition_keys": ["day"],
            "buckets": 1,
        }
    )
    common = {"fluss_conn_id": conn_id, "table": spec.table, "deferrable": deferrable}
    later(lambda: apply_tables(client, [spec]))
    found = sense("FlussTableSensor", f"table_{database}", **common)
    admin = client.get_admin().result()
    assert found["table_id"] == admin.get_table_info(spec.path).result().table_id

    day = {"day": "2026-11-17"}
    later(lambda: admin.create_partition(spec.path, day).result())
    found = sense("FlussPartitionSensor", f"part_{database}", partition=day, **common)
    assert list(found["partitions"]) == ["2026-11-17"]


@pytest.mark.parametrize("deferrable", [False, True], ids=["poke", "deferred"])
def test_rows_since_the_first_look_a_checkpoint_and_offsets(
    conn_id: str,
    client: FlussConnection,
    database: str,
    later: Callable[[Callable[[], Any]], None],
    deferrable: bool,
) -> None:
    spec = numbers_spec(database, buckets=1)
    apply_tables(client, [spec])
    load_rows(client, spec.table, numbered(0, 10), "first")
    common = {"fluss_conn_id": conn_id, "table": spec.table, "deferrable": deferrable}
    later(lambda: load_rows(client, spec.table, numbered(10, 30), "second"))
    found = sense("FlussOffsetSensor", f"rows_{database}", min_offsets=15, start="latest", **common)
    assert (found["rows"], found["ranges"]) == (20, [[None, None, 0, 10, 30]])

    checkpoint = f"sensor-{database}"
    found = sense("FlussOffsetSensor", f"new_{database}", checkpoint=checkpoint, **common)
    assert found["rows"] == 30
    from fluss_orchestrate import IncrementalScan

    IncrementalScan(client, spec.table, checkpoint).reset({0: 25})
    found = sense(
        "FlussOffsetSensor", f"old_{database}", checkpoint=checkpoint, min_offsets=5, **common
    )
    assert found["ranges"] == [[None, None, 0, 25, 30]]
    FlussCheckpointStore(client).retire(checkpoint)

    later(lambda: load_rows(client, spec.table, numbered(30, 31), "third"))
    sense("FlussOffsetSensor", f"offsets_{database}", offsets={0: 31}, **common)


def test_the_default_of_deferrable_is_airflows_own(
    embedded_conn_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`[operators] default_deferrable` decides, where the argument is left out."""
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussConditionTrigger, FlussHook, FlussOffsetSensor

    client = FlussHook(embedded_conn_id).get_conn()
    spec = numbers_spec("defaults", buckets=1)
    apply_tables(client, [spec])
    waited: list[str] = []
    wait = FlussConditionTrigger.run

    def counted(self: Any) -> Any:
        waited.append(self.condition["table"])
        load_rows(client, spec.table, numbered(0, 10), "rows")
        return wait(self)

    monkeypatch.setattr(FlussConditionTrigger, "run", counted)
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    common = {"fluss_conn_id": embedded_conn_id, "table": spec.table}
    sense("FlussOffsetSensor", "by_default", min_offsets=10, start="earliest", **common)
    assert len(waited) == 1
    with DAG("explicit"):
        poked = FlussOffsetSensor(task_id="poked", deferrable=False, **common)
        monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "False")
        by_default = FlussOffsetSensor(task_id="by_default", **common)
    assert (poked.deferrable, by_default.deferrable) == (False, False)


def test_what_never_comes_fails_at_once_and_says_so(
    conn_id: str, client: FlussConnection, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A table that is dropped and created again while a sensor waits is not the one meant."""
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussOffsetSensor, FlussTaskFailedError

    spec = numbers_spec(database, buckets=1)
    apply_tables(client, [spec])
    condition = _condition(client, spec.path)
    admin = client.get_admin().result()
    admin.drop_table(spec.path).result()
    apply_tables(client, [spec])
    event = _fired(conn_id, condition)
    assert event["status"] == "error"
    assert event["retry"] is False
    with DAG(f"error_{database}"):
        sensor = FlussOffsetSensor(task_id="wait", table=spec.table, fluss_conn_id=conn_id)
    with pytest.raises(FlussTaskFailedError, match="dropped and created again"):
        sensor.execute_complete({}, event)


def _condition(client: FlussConnection, path: TablePath) -> dict[str, Any]:
    from fluss_orchestrate.core.conditions import RowsCame

    admin = client.get_admin().result()
    return RowsCame(path, {}, admin.get_table_info(path).result().table_id, 1).to_json()


def _fired(conn_id: str, condition: dict[str, Any]) -> dict[str, Any]:
    """What a trigger gives after it was written down and made again, as Airflow does."""
    import asyncio

    from fluss_orchestrate.airflow import FlussConditionTrigger

    first = FlussConditionTrigger(fluss_conn_id=conn_id, condition=condition, poll_interval=0.1)
    name, arguments = first.serialize()

    async def one() -> dict[str, Any]:
        async for event in pkgutil.resolve_name(name)(**arguments).run():
            payload: dict[str, Any] = event.payload
            return payload
        raise AssertionError("the trigger gave nothing")

    return asyncio.run(one())
