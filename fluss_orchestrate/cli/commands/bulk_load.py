"""`fluss-orchestrate bulk-load`: a load of any size on Spark, each row once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluss_orchestrate.cli.connecting import key_values
from fluss_orchestrate.cli.options import TableArgument
from fluss_orchestrate.cli.parsing import path_of
from fluss_orchestrate.cli.presentation.failures import UsageError
from fluss_orchestrate.cli.presentation.output import count
from fluss_orchestrate.cli.presentation.progress import Meter, metered
from fluss_orchestrate.cli.session import Session, with_session

if TYPE_CHECKING:
    from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource

_SPARK = "Spark"
_OUR_LINES = "fluss-orchestrate: "
_LAST_WORDS = (f"{_OUR_LINES}receipt: ", f"{_OUR_LINES}error: ")
_PROGRESS = re.compile(r"\d+%: ([\d,]+) of ([\d,]+) rows")
SUFFIXES = {".parquet": "parquet", ".orc": "orc", ".csv": "csv", ".json": "json", ".jsonl": "json"}


class SourceKind(StrEnum):
    """What the rows are in."""

    parquet = "parquet"
    orc = "orc"
    csv = "csv"
    json = "json"
    jdbc = "jdbc"
    iceberg = "iceberg"
    table = "table"
    query = "query"


@with_session
def bulk_load(
    session: Session,
    name: TableArgument,
    source: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE", help="Files or folders; else a table, or a query."),
    ],
    load_id: Annotated[
        str, typer.Option(metavar="ID", help="Names these rows for good; the same id resumes.")
    ],
    kind: Annotated[
        SourceKind | None, typer.Option("--format", help="What the rows are in (by the name).")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An option of Spark's reader.")
    ] = None,
    secret_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VARIABLE", help="One whose value a variable holds."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="TO=FROM", help="Where names differ; may be repeated."),
    ] = None,
    transform: Annotated[
        str | None, typer.Option(metavar="SQL", help="Spark SQL over the view `source`.")
    ] = None,
    order_by: Annotated[
        str | None, typer.Option(help="Key tables: the greatest value here wins.")
    ] = None,
    staging: Annotated[
        str | None, typer.Option(metavar="DIR", help="For rows that are not in Parquet yet.")
    ] = None,
    dead_letter: Annotated[
        str | None, typer.Option(metavar="DIR", help="For rows that do not fit the table.")
    ] = None,
    provision: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A YAML spec; creates the table first.")
    ] = None,
    create_partitions: Annotated[bool, typer.Option("--create-partitions")] = False,
    master: Annotated[
        str, typer.Option(help="local[N], spark://..., yarn, k8s://...", rich_help_panel=_SPARK)
    ] = "local[*]",
    deploy_mode: Annotated[
        str, typer.Option(help="client or cluster.", rich_help_panel=_SPARK)
    ] = "client",
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A Spark setting.", rich_help_panel=_SPARK),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Kill it after so long.", rich_help_panel=_SPARK),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="All that Spark says.", rich_help_panel=_SPARK)
    ] = False,
) -> None:
    """Load files, tables or queries of any size with spark-submit, exactly once.

    Run it again with the same --load-id after any crash: it goes on where it was.

    Examples:

      fluss-orchestrate bulk-load sales.events /data/events --format parquet --load-id history-1

      fluss-orchestrate bulk-load sales.orders orders.csv --load-id orders-1 --option header=true
    """
    from fluss_orchestrate.core.spark_submit.job import submit_load
    from fluss_orchestrate.core.spark_submit.submit import SparkSubmit

    path_of(name)
    spec = _spec(
        name,
        load_id,
        _source(source, kind, option or [], secret_option or []),
        transform_sql=transform,
        columns=key_values(columns or (), "--column"),
        provision=None if provision is None else _provision(provision, name),
        create_partitions=create_partitions,
        order_by=order_by,
        staging=staging,
        dead_letter=dead_letter,
    )
    submit = SparkSubmit(master, deploy_mode, f"load {name}", key_values(conf or (), "--conf"))
    settings = session.target.settings()
    with metered(f"loading {name}") as meter:
        hear = listener(session, meter, verbose)
        receipt = submit_load(submit, spec, settings, on_log=hear, timeout_s=timeout)
        meter.rows = receipt.rows
    session.answer(receipt.to_json(), lambda: f"{count(receipt.rows, 'row')} loaded exactly once")


def listener(session: Session, meter: Meter, verbose: bool) -> Callable[[str], None]:
    """Return a function that turns lines of the job into progress, and passes on the others."""

    def hear(line: str) -> None:
        found = _PROGRESS.search(line)
        if found is not None:
            done, total = (int(text.replace(",", "")) for text in found.groups())
            meter.at(done, done, total)
        elif verbose:
            session.note(line)
        elif line.startswith(_OUR_LINES) and not line.startswith(_LAST_WORDS):
            session.note(line.removeprefix(_OUR_LINES))

    return hear


def _source(
    given: list[str], kind: str | None, options: list[str], secrets: list[str]
) -> LoadSource:
    from fluss_orchestrate.core.spark_submit.load_spec import FILE_KINDS, LoadSource

    kind = kind or SUFFIXES.get(Path(given[0]).suffix.lower())
    if kind is None:
        raise UsageError(f"say with --format what '{given[0]}' is: {', '.join(SourceKind)}")
    common: dict[str, Any] = {
        "options": key_values(options, "--option"),
        "secret_options": key_values(secrets, "--secret-option"),
    }
    if kind in FILE_KINDS:
        return LoadSource(str(kind), tuple(given), **common)
    if len(given) > 1:
        raise UsageError(f"a source of format {kind} is one name or query, not {len(given)}")
    is_query = kind == "query" or (kind == "jdbc" and " " in given[0].strip())
    table, query = (None, given[0]) if is_query else (given[0], None)
    return LoadSource(str(kind), (), table, query, **common)


def _spec(name: str, load_id: str, source: LoadSource, **more: Any) -> BulkLoadSpec:
    from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec

    return BulkLoadSpec(source, name, load_id, **more)


def _provision(file: Path, name: str) -> Mapping[str, Any]:
    """Return the spec of this table in a YAML file, as plain values."""
    import yaml

    from fluss_orchestrate.core.provisioning import load_table_specs

    load_table_specs(file)
    document = yaml.safe_load(file.read_text())
    for spec in document["tables"] if isinstance(document, Mapping) else document:
        if spec.get("table") == name:
            return dict(spec)
    raise UsageError(f"{file} has no table {name}")
