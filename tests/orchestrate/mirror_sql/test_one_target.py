"""A SQL table is one mirror under all of its names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from fluss_client import TablePath
from fluss_orchestrate.core.sinks import (
    SinkContendedError,
    SinkFormError,
    SinkPositionError,
    SqlSink,
)
from tests.orchestrate.mirror_sql.change_plans import plan_of, state
from tests.orchestrate.mirror_sql.test_sql_values import execute, scalar
from tests.orchestrate.sinks.plans import IDENTITY

ROWS = pa.table({"id": [1], "v": ["a"]})
NONE = ROWS.slice(0, 0)
Name = tuple[str, str, str | None]
"""A URL, a table and its schema."""


def names_of(url: str, folder: Path) -> list[Name]:
    """The names of one table, the first of which a mirror takes."""
    if url.startswith("sqlite"):
        (folder / "link.db").symlink_to(folder / "test.db")
        linked = f"sqlite:///{folder}/link.db"
        return [(url, "t", None), (url, "t", "main"), (linked, "t", None), (url, "T", None)]
    execute(url, "CREATE SCHEMA app")
    # The table stands in one schema of the path, its positions in the other one.
    path = f"{url}?options=-csearch_path%3Dapp,public"
    return [(url, "t", None), (url, "t", "public"), (path, "t", None), (path, "t", "public")]


def opened(name: Name, form: str = "mirror") -> SqlSink:
    url, table, schema = name
    return SqlSink(url, table, schema=schema, form=form, schema_policy="add_columns")


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("checkpoint", ["second", "m"])
def test_a_mirror_is_seen_under_every_name(
    sql_url: str, tmp_path: Path, first: int, checkpoint: str
) -> None:
    names = names_of(sql_url, tmp_path)
    execute(sql_url, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    opened(names[first]).write(plan_of(0, 0, kind="state"), state(NONE))
    plan = plan_of(0, 1, kind="state", name=checkpoint)
    other = replace(plan, table=replace(IDENTITY, path=TablePath("shop", "others")))
    for name in names:
        for form in ("mirror", "history", "append"):
            with pytest.raises((SinkFormError, SinkPositionError)):
                opened(name, form).write(other, state(ROWS))
            if checkpoint == "second":
                with pytest.raises(SinkFormError, match="'m' writes into this table"):
                    opened(name, form).write(plan, state(ROWS))
    assert scalar(sql_url, "SELECT count(*) FROM t") == 0
    # The mirror itself goes on.
    opened(names[first]).write(plan_of(0, 1), state(ROWS))
    assert scalar(sql_url, "SELECT count(*) FROM t") == 1


def test_rows_that_are_added_are_seen_under_every_name(sql_url: str, tmp_path: Path) -> None:
    names = names_of(sql_url, tmp_path)
    execute(sql_url, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    opened(names[1], "append").write(plan_of(0, 1, kind="state", name="adds"), state(NONE))
    for name in names:
        with pytest.raises(SinkFormError, match="'adds' writes into this table"):
            opened(name).write(plan_of(0, 0, kind="state"), state(NONE))


@pytest.mark.parametrize("turn", range(3))
def test_mirrors_that_begin_at_once_under_two_names(
    sql_url: str, tmp_path: Path, turn: int
) -> None:
    names = names_of(sql_url, tmp_path)
    execute(sql_url, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")

    def begin(number: int) -> bool:
        try:
            opened(names[number % len(names)]).write(
                plan_of(0, 0, kind="state", name=f"m{number}"), state(NONE)
            )
        except (SinkFormError, SinkContendedError):
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(begin, range(turn, turn + 8))) == 1


def test_a_table_that_was_created_in_another_case_is_told(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/test.db"
    execute(url, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    with pytest.raises(SinkFormError, match="letter by letter"):
        SqlSink(url, "T", form="mirror").write(plan_of(0, 0, kind="state"), state(NONE))


def test_a_rebuild_is_one_of_the_same_table(sql_url: str) -> None:
    """A later generation of a checkpoint of this name, about another table, replaces nothing."""
    sink = SqlSink(sql_url, "t", form="mirror")
    sink.write(plan_of(0, 1, kind="state"), state(ROWS))
    other = replace(IDENTITY, path=TablePath("shop", "others"))
    with pytest.raises(SinkPositionError, match=r"shop/orders, and the plan is about .*others"):
        sink.write(plan_of(0, 1, kind="state", generation=7, table=other), state(ROWS))
    again = replace(IDENTITY, table_id=99, created_time=IDENTITY.created_time + 1)
    sink.write(plan_of(0, 1, kind="state", generation=7, table=again), state(ROWS))
