"""`FlussWriteOperator` and key tables: changes, columns that rows lack, and empty ids."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fluss_client import FlussConnection
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from tests.airflow_provider.running import run, states

pytestmark = pytest.mark.usefixtures("airflow_home")
DATE = datetime(2026, 11, 17, 3, tzinfo=UTC)


def test_changes_and_columns(conn_id: str, client: FlussConnection, database: str) -> None:
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussWriteOperator

    spec = TableSpec.from_mapping(
        {
            "table": f"{database}.state",
            "columns": {"id": "bigint", "word": "string", "more": "string"},
            "primary_key": ["id"],
            "buckets": 1,
        }
    )
    apply_tables(client, [spec])
    old = [{"id": n, "word": "a", "more": "m"} for n in range(4)]
    changes = [
        {"id": 1, "word": "b", "more": "n", "_change_type": "+U"},
        {"id": 2, "word": None, "more": None, "_change_type": "-D"},
    ]
    tasks: dict[str, dict[str, Any]] = {
        "old": {"rows": old},
        "changes": {"rows": changes},
        "part": {"rows": [{"id": 3, "word": "only"}]},
        "mixed": {"rows": [{"id": 0, "word": "x"}, {"id": 1, "more": "y"}]},
        "no_id": {"rows": [{"id": 0, "word": "x"}], "load_id": "{{ params.nothing }}"},
    }
    with DAG(f"write_{database}", params={"nothing": ""}) as dag:
        before: Any = None
        for name, given in tasks.items():
            task = FlussWriteOperator(
                task_id=name,
                fluss_conn_id=conn_id,
                table=spec.table,
                trigger_rule="all_done",
                **given,
            )
            if before is not None:
                before >> task
            before = task
    failed = {"mixed": "failed", "no_id": "failed"}
    done = run(dag, logical_date=DATE)
    assert states(done) == {**dict.fromkeys(tasks, "success"), **failed}
    lookup = client.get_table(spec.path).result().new_lookup()
    found = lookup.lookup_many([{"id": n} for n in range(4)]).result()
    assert [row and (row["word"], row["more"]) for row in found] == [
        ("a", "m"),
        ("b", "n"),
        None,
        ("only", "m"),
    ]
