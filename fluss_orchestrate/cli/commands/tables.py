"""`fluss-orchestrate tables`: list, describe, plan, apply and drop them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluss_orchestrate.cli.options import TableArgument, YesOption, group, make_sure
from fluss_orchestrate.cli.parsing import path_of
from fluss_orchestrate.cli.presentation.output import pairs, table, when
from fluss_orchestrate.cli.session import Session, with_session

if TYPE_CHECKING:
    from fluss_client import TableInfo

app = group("List, describe, plan, apply and drop tables.")

SpecArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file with table specs.")]


@app.command()
@with_session
def ls(
    session: Session,
    database: Annotated[
        str | None, typer.Argument(metavar="DATABASE", help="Only its tables.")
    ] = None,
) -> None:
    """List the tables of a database, or of all of them.

    Example:

      fluss-orchestrate tables ls sales
    """
    from fluss_client import TablePath

    admin = session.admin
    databases = [database] if database else sorted(admin.list_databases().result())
    paths = [TablePath(d, t) for d in databases for t in sorted(admin.list_tables(d).result())]
    calls = [admin.get_table_info(path) for path in paths]
    found = [_line(call.result()) for call in calls]
    headers = ["table", "kind", "columns", "buckets", "partitioned by", "lake"]
    session.answer(found, lambda: table(headers, [list(line.values()) for line in found]))


def _line(info: TableInfo) -> dict[str, Any]:
    return {
        "table": str(info.table_path),
        "kind": "primary key" if info.has_primary_key() else "log",
        "columns": info.get_column_count(),
        "buckets": info.num_buckets,
        "partitioned_by": ", ".join(info.partition_keys) or None,
        "lake": info.properties.get("table.datalake.enabled", "false").lower() == "true",
    }


@app.command()
@with_session
def describe(session: Session, name: TableArgument) -> None:
    """Show a table's columns, keys and options.

    Example:

      fluss-orchestrate tables describe sales.orders
    """
    info = session.admin.get_table_info(path_of(name)).result()
    columns = [
        {"name": c.name, "type": str(c.type), "comment": c.comment} for c in info.schema.columns
    ]
    facts: dict[str, Any] = {
        **_line(info),
        "table_id": info.table_id,
        "schema_id": info.schema_id,
        "primary_key": info.get_primary_keys(),
        "partition_keys": info.get_partition_keys(),
        "bucket_keys": info.get_bucket_keys(),
        "comment": info.comment,
        "created_ms": info.created_time,
        "properties": shown_properties(info.properties),
        "custom_properties": dict(info.custom_properties),
    }

    def show() -> list[Any]:
        texts = {k.replace("_", " "): v for k, v in facts.items() if not _is_empty(v)}
        texts |= {k: ", ".join(v) for k, v in texts.items() if isinstance(v, list)}
        texts.pop("properties", None), texts.pop("custom properties", None)
        texts["columns"] = len(columns)
        texts["created"] = when(texts.pop("created ms", -1))
        options = {**facts["properties"], **facts["custom_properties"]}
        listed = table(["column", "type", "comment"], [list(c.values()) for c in columns])
        return [pairs(texts), "", listed, *(["", pairs(options)] if options else [])]

    session.answer({**facts, "columns": columns}, show)


def shown_properties(properties: Any) -> dict[str, str]:
    """Options that may be shown: a lake's secrets are covered."""
    from fluss_orchestrate.core.lake.catalog import redacted

    return redacted(properties)


def _is_empty(value: Any) -> bool:
    return value is None or value == [] or value == {}


@app.command()
@with_session
def plan(session: Session, file: SpecArgument) -> None:
    """Show what must change so that every table is as its spec asks; change nothing.

    Example:

      fluss-orchestrate tables plan tables.yaml
    """
    from fluss_orchestrate.core.provisioning import load_table_specs
    from fluss_orchestrate.core.provisioning import plan_tables as make_plan

    planned = make_plan(session.connection, load_table_specs(file))
    session.answer(planned.to_json(), lambda: str(planned))


@app.command()
@with_session
def apply(session: Session, file: SpecArgument) -> None:
    """Create and extend tables as their specs ask. Nothing is ever dropped or rebuilt.

    Example:

      fluss-orchestrate tables apply tables.yaml
    """
    from fluss_orchestrate.core.provisioning import apply_tables as carry_out
    from fluss_orchestrate.core.provisioning import load_table_specs

    done = carry_out(session.connection, load_table_specs(file))
    session.answer(
        [{"change": type(c).__name__, "what": str(c)} for c in done],
        lambda: [str(c) for c in done] or "nothing to change",
    )


@app.command()
@with_session
def drop(session: Session, name: TableArgument, yes: YesOption = False) -> None:
    """Drop a table with all its rows.

    Example:

      fluss-orchestrate tables drop sales.orders --yes
    """
    path = path_of(name)
    info = session.admin.get_table_info(path).result()
    make_sure(f"drop table {name} (id {info.table_id}) with all its rows", yes)
    session.admin.drop_table(path).result()
    session.answer({"table": name, "table_id": info.table_id}, lambda: f"dropped {name}")
