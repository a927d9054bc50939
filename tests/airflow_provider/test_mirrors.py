"""Mirrors in DAGs that Airflow runs: tables, databases, waiting for rows, the check, contracts."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from tests.airflow_provider.running import result_of, run, states
from tests.waiting import scaled

pytestmark = pytest.mark.usefixtures("airflow_home")
NEEDS_SQL = pytest.mark.airflow_has(
    "sqlalchemy_2", instead="test_sql_targets_are_refused_where_sqlalchemy_is_too_old"
)
Query = Callable[[str], list[Any]]


def customers(database: str, name: str = "customers") -> TableSpec:
    """A key table."""
    return TableSpec.from_mapping(
        {
            "table": f"{database}.{name}",
            "columns": {"id": "bigint", "name": "string", "credit": "double"},
            "primary_key": ["id"],
            "buckets": 2,
        }
    )


def upsert(client: FlussConnection, table: str, rows: dict[int, float], deletes: Any = ()) -> None:
    with client.get_table(TablePath.parse(table)).result().new_upsert().create_writer() as writer:
        for key, credit in rows.items():
            writer.upsert({"id": key, "name": f"c{key}", "credit": credit})
        for key in deletes:
            writer.delete({"id": key})


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    """The Airflow connection `warehouse`; runs a statement there."""
    file = tmp_path / "warehouse.db"
    url = {"conn_type": "generic", "extra": {"sqlalchemy_url": f"sqlite:///{file}"}}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(url))

    def query(text: str) -> list[Any]:
        with closing(sqlite3.connect(file)) as opened, opened:
            return opened.execute(text).fetchall()

    return query


@pytest.mark.airflow_lacks("sqlalchemy_2")
def test_sql_targets_are_refused_where_sqlalchemy_is_too_old(
    conn_id: str, client: FlussConnection, database: str, warehouse: Query
) -> None:
    """Airflow 3.0 allows no SQLAlchemy 2. Mirrors in other Fluss tables work there."""
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import (
        FlussMirrorCheckOperator,
        FlussMirrorOperator,
        FlussTarget,
        SqlTarget,
    )

    target = SqlTarget("customers", "warehouse", form="mirror")
    with pytest.raises(ConfigError, match=r"which Airflow allows from 3\.1 on"):
        target.open(client)
    spec = customers(database)
    apply_tables(client, [spec])
    upsert(client, spec.table, {1: 1.0, 2: 2.0})
    common: dict[str, Any] = {"fluss_conn_id": conn_id, "table": spec.table}
    copy = {"checkpoint": f"{database} copy", "sink": FlussTarget(f"{database}.b", form="mirror")}
    with DAG(f"old_{database}") as dag:
        refused = FlussMirrorOperator(
            task_id="refused", checkpoint=f"{database} sql", sink=target, **common
        )
        mirror = FlussMirrorOperator(task_id="mirror", trigger_rule="all_done", **copy, **common)
        refused >> mirror >> FlussMirrorCheckOperator(task_id="check", **copy, **common)
    done = run(dag)
    assert states(done) == {"refused": "failed", "mirror": "success", "check": "success"}


@NEEDS_SQL
def test_a_mirror_is_kept_equal_and_checked(
    conn_id: str, client: FlussConnection, database: str, warehouse: Query
) -> None:
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import (
        FlussMirrorCheckOperator,
        FlussMirrorOperator,
        SqlTarget,
    )

    spec = customers(database)
    apply_tables(client, [spec])
    upsert(client, spec.table, {1: 1.0, 2: 2.0, 3: 3.0})
    common: dict[str, Any] = {
        "fluss_conn_id": conn_id,
        "table": spec.table,
        "checkpoint": f"{database} mirror",
        "sink": SqlTarget("{{ 'cust' }}omers", "warehouse", form="mirror"),
    }
    with DAG(f"mirror_{database}") as dag:
        mirror = FlussMirrorOperator(task_id="mirror", **common)
        check = FlussMirrorCheckOperator(task_id="check", **common)
        mirror >> check
    done = run(dag)
    assert states(done) == {"mirror": "success", "check": "success"}
    receipt = result_of(done, "mirror")
    assert (receipt["kind"], receipt["rows"], receipt["adopted"]) == ("increment", 3, [])
    assert result_of(done, "check")["equal"] is True
    upsert(client, spec.table, {2: 20.0, 4: 4.0}, deletes=[1])
    assert states(run(dag)) == {"mirror": "success", "check": "success"}
    rows = warehouse("select id, credit from customers order by id")
    assert rows == [(2, 20.0), (3, 3.0), (4, 4.0)]
    warehouse("update customers set credit = 5 where id = 3")
    assert states(run(dag)) == {"mirror": "success", "check": "failed"}


@NEEDS_SQL
def test_a_mirror_waits_for_rows_and_needs_a_target_that_replaces(
    conn_id: str, client: FlussConnection, database: str, warehouse: Query
) -> None:
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussMirrorOperator, SqlTarget

    spec = customers(database)
    apply_tables(client, [spec])
    with pytest.raises(TypeError, match="sink is a target"):
        FlussMirrorOperator(task_id="x", table="a.b", checkpoint="c", sink="customers")  # type: ignore[arg-type]
    common = {"fluss_conn_id": conn_id, "table": spec.table}
    with DAG(f"waits_{database}") as dag:
        FlussMirrorOperator(
            task_id="waits",
            checkpoint=f"{database} waits",
            sink=SqlTarget("waited", "warehouse", form="mirror"),
            min_offsets="{{ 1 + 1 }}",
            poll_interval=0.1,
            wait_timeout=scaled(60),
            **common,
        )
        FlussMirrorOperator(
            task_id="appends",
            checkpoint=f"{database} appends",
            sink=SqlTarget("appended", "warehouse"),
            **common,
        )
    later = threading.Timer(1.0, upsert, (client, spec.table, {1: 1.0, 2: 2.0}))
    later.start()
    done = run(dag)
    later.join()
    assert states(done) == {"waits": "success", "appends": "failed"}
    assert result_of(done, "waits")["rows"] == 2
    assert warehouse("select count(*) from waited") == [(2,)]
    assert warehouse("select name from sqlite_master where name = 'appended'") == []


@NEEDS_SQL
def test_a_database_is_mirrored_and_a_failure_is_named(
    conn_id: str, client: FlussConnection, database: str, warehouse: Query
) -> None:
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import (
        FlussMirrorCheckOperator,
        FlussMirrorDatabaseOperator,
        SqlTarget,
    )

    names = ("customers", "suppliers", "tmp_things")
    events = {"table": f"{database}.events", "columns": {"id": "bigint"}, "buckets": 1}
    specs = [customers(database, name) for name in names]
    apply_tables(client, [*specs, TableSpec.from_mapping(events)])
    for spec in specs:
        upsert(client, spec.table, {1: 1.0})
    with (
        client.get_table(TablePath(database, "events"))
        .result()
        .new_append()
        .create_writer() as writer
    ):
        writer.append({"id": 7})
    with pytest.raises(ValueError, match=r"\{table\}"):
        FlussMirrorDatabaseOperator(
            task_id="x", database="a", sink=SqlTarget("one", "warehouse", form="mirror")
        )
    target = SqlTarget("{database}_{table}", "warehouse", form="mirror")
    with DAG(f"database_{database}") as dag:
        every = FlussMirrorDatabaseOperator(
            task_id="every",
            fluss_conn_id=conn_id,
            database=database,
            sink=target,
            exclude="tmp_*",
            on_log_tables="append",
        )
        check = FlussMirrorCheckOperator(
            task_id="check",
            fluss_conn_id=conn_id,
            table=f"{database}.suppliers",
            checkpoint=f"mirror/{database}.suppliers",
            sink=SqlTarget(f"{database}_suppliers", "warehouse", form="mirror"),
        )
        every >> check
    done = run(dag)
    assert states(done) == {"every": "success", "check": "success"}
    summary = result_of(done, "every")
    kinds = {one["table"].partition(".")[2]: one["kind"] for one in summary["tables"]}
    assert kinds == {"customers": "mirror", "events": "append", "suppliers": "mirror"}
    assert warehouse(f"select id from {database}_events") == [(7,)]
    warehouse(f"drop table {database}_customers")
    warehouse(f"create table {database}_customers (other integer)")
    upsert(client, f"{database}.customers", {2: 2.0})
    upsert(client, f"{database}.suppliers", {2: 2.0})
    failed = run(dag)
    assert states(failed)["every"] == "failed"
    assert warehouse(f"select count(*) from {database}_suppliers") == [(2,)], "the others go on"


@NEEDS_SQL
def test_contracts_are_targets(
    conn_id: str, client: FlussConnection, database: str, warehouse: Query
) -> None:
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import ContractTarget, FlussMirrorOperator, SqlTarget

    spec = customers(database)
    apply_tables(client, [spec])
    upsert(client, spec.table, {1: 1.0, 2: -2.0})
    good = SqlTarget("good", "warehouse", form="mirror")
    rules = ["credit >= 0", {"column": "name", "not_null": True}]
    common = {"fluss_conn_id": conn_id, "table": spec.table}
    with DAG(f"contracts_{database}") as dag:
        FlussMirrorOperator(
            task_id="quarantines",
            checkpoint=f"{database} quarantine",
            sink=ContractTarget(good, rules, "quarantine", SqlTarget("{{ 'b' }}ad", "warehouse")),
            **common,
        )
        FlussMirrorOperator(
            task_id="fails",
            checkpoint=f"{database} fails",
            sink=ContractTarget(SqlTarget("strict", "warehouse", form="mirror"), rules),
            **common,
        )
    done = run(dag)
    assert states(done) == {"quarantines": "success", "fails": "failed"}
    assert result_of(done, "quarantines")["details"]["sink"]["quarantined"] == 1
    assert warehouse("select id from good") == [(1,)]
    assert warehouse("select id, _reason from bad") == [(2, "credit >= 0")]
