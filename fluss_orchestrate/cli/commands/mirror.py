"""`fluss-orchestrate mirror`: keep sinks equal to key tables, and prove that they are."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fluss_orchestrate.cli.commands.scan import SinkOptions, made_run_key
from fluss_orchestrate.cli.options import (
    CatalogOption,
    ColumnsOption,
    Commands,
    RunKeyOption,
    SinkEnvOption,
    SinkOption,
    StoreOption,
    TableArgument,
    names,
)
from fluss_orchestrate.cli.parsing import moment, path_of
from fluss_orchestrate.cli.presentation.failures import FAILED, UsageError
from fluss_orchestrate.cli.presentation.output import count, table
from fluss_orchestrate.cli.presentation.progress import metered
from fluss_orchestrate.cli.session import (
    Session,
    open_store,
    parameters_of,
    with_parameters,
    with_session,
)

if TYPE_CHECKING:
    from fluss_client import TablePath
    from fluss_orchestrate.core.checkpoints import CheckpointStore
    from fluss_orchestrate.core.mirror.comparison import MirrorComparison
    from fluss_orchestrate.core.sinks import Sink

DEFAULT = "table"
PREFIX = "mirror/"


class MirrorGroup(TyperGroup):
    """The group; without one of its words, the first argument is a table."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the word `table` before the name of a table."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [DEFAULT, *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


app: typer.Typer = Commands(
    help="Keep sinks equal to key tables, and verify them.",
    cls=MirrorGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
)

ToOption = Annotated[
    str,
    typer.Option(
        metavar="SINK",
        help="The sink, as for `scan --to`: sql:TABLE, iceberg:NAMESPACE.TABLE, ... Its form is "
        "`mirror`.",
    ),
]
CheckpointOption = Annotated[
    str | None, typer.Option(help=f"The checkpoint's name; {PREFIX}DATABASE.TABLE by default.")
]
UntilOption = Annotated[str, typer.Option(help="latest, a time, offsets or @receipt.json.")]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="A condition that rows must keep, such as 'amount >= 0'; may be repeated.",
    ),
]
QuarantineOption = Annotated[
    str | None,
    typer.Option(
        metavar="SINK",
        help="Where rows go that violate a rule; without it they stop the run. It has the fields "
        "of --to.",
    ),
]


def sink_options(
    to: str,
    catalog: Sequence[str] | None,
    option: Sequence[str] | None,
    variables: Sequence[str] | None,
    form: str,
) -> SinkOptions:
    """Return what the command line says of a sink, with its form unless that is given."""
    given = list(option or ())
    if not any(text.startswith("form=") for text in given):
        given.append(f"form={form}")
    return SinkOptions(to, catalog or (), given, variables or ())


@dataclass(frozen=True)
class Place:
    """A table, the sink that mirrors it, and the checkpoint between them.

    Attributes:
        path: The table.
        columns: The columns to copy; None for all.
        options: What the command line says of the sink.
        sink: The sink, opened.
        checkpoint: The name of the checkpoint.
        store: The store of the checkpoint.
    """

    path: TablePath
    columns: list[str] | None
    options: SinkOptions
    sink: Sink
    checkpoint: str
    store: CheckpointStore


def with_place(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a `Session` and a `Place`, made of options that are added here."""

    @functools.wraps(command)
    def run(
        session: Session,
        *,
        name: str,
        to: str,
        sink_option: list[str] | None,
        sink_env: list[str] | None,
        catalog: list[str] | None,
        checkpoint: str | None,
        columns: str | None,
        store: str | None,
        **own_options: Any,
    ) -> None:
        path = path_of(name)
        options = sink_options(to, catalog, sink_option, sink_env, "mirror")
        place = Place(
            path,
            names(columns),
            options,
            options.open(session, []),
            checkpoint or f"{PREFIX}{path}",
            open_store(session.connection, store),
        )
        command(session, place, **own_options)

    first = inspect.Parameter("session", inspect.Parameter.POSITIONAL_ONLY, annotation=Session)
    options = (*parameters_of(_of_a_place), *parameters_of(command, 2))
    return with_session(with_parameters(run, (first, *options)))


def _of_a_place(
    *,
    name: TableArgument,
    to: ToOption,
    sink_option: SinkOption = None,
    sink_env: SinkEnvOption = None,
    catalog: CatalogOption = None,
    checkpoint: CheckpointOption = None,
    columns: ColumnsOption = None,
    store: StoreOption = None,
) -> None:
    """Return the options of every command about one mirror."""


@app.command(DEFAULT)
@with_place
def mirror(
    session: Session,
    place: Place,
    run_key: RunKeyOption = None,
    until: UntilOption = "latest",
    max_offsets: Annotated[
        int | None, typer.Option(min=1, help="At most about so many changes in this run.")
    ] = None,
    rule: RuleOption = None,
    quarantine: QuarantineOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the sink with the table afterwards.")
    ] = False,
) -> None:
    """Bring a sink up to the current rows of a key table, exactly once.

    The first run writes all rows, each further run applies the changes since. Run it again after
    any crash. The word `table` may be left out.

    Examples:

      fluss-orchestrate mirror table sales.customers --to sql:customers --sink-env url=WAREHOUSE

      fluss-orchestrate mirror sales.customers --to sql:customers --sink-env url=WAREHOUSE --verify
    """
    from fluss_orchestrate.core.mirror.table import mirror_table

    end = moment(session, str(place.path), until, ("latest",), "--until")
    sink = _with_rules(session, place, rule, quarantine)
    with metered(f"mirroring {place.path}") as meter:
        result = mirror_table(
            session.connection,
            place.path,
            sink,
            run_key or made_run_key(),
            checkpoint=place.checkpoint,
            until=end,
            max_offsets=max_offsets,
            store=place.store,
            columns=place.columns,
            progress=meter.follow,
        )
        meter.rows = result.rows
    answer: dict[str, Any] = {
        "receipt": result.receipt.to_json(),
        "adopted": [r.to_json() for r in result.adopted],
        "rows": result.rows,
    }
    said = f"{count(result.rows, 'change')} to {place.options.to}"
    equal = True
    if verify:
        found = _compared(session, replace(place, sink=sink))
        answer["comparison"], equal = found.to_json(), found.equal
        said = f"{said}\n{found}"
    session.answer(answer, lambda: said)
    _end(equal)


def _with_rules(
    session: Session, place: Place, rules: Sequence[str] | None, quarantine: str | None
) -> Sink:
    """Return the sink with the rules that rows must keep, if there are any."""
    from fluss_orchestrate.core.sinks.contract import ContractSink

    if not rules:
        if quarantine is not None:
            raise UsageError("--quarantine is for rows that violate a --rule: give one")
        return place.sink
    if quarantine is None:
        return ContractSink(place.sink, rules)
    adding = [text for text in place.options.options if not text.startswith("form=")]
    other = replace(place.options, to=quarantine, options=adding).open(session, [])
    return ContractSink(place.sink, rules, "quarantine", other)


def _compared(session: Session, place: Place, **options: Any) -> MirrorComparison:
    from fluss_orchestrate.core.mirror.verification import verify_mirror

    return verify_mirror(
        session.connection,
        place.path,
        place.sink,
        place.checkpoint,
        store=place.store,
        columns=place.columns,
        **options,
    )


@app.command()
@with_place
def verify(
    session: Session,
    place: Place,
    keys: Annotated[int, typer.Option(min=0, help="Name at most so many keys that differ.")] = 10,
) -> None:
    """Compare a mirror with its table, at the offsets that the mirror has reached.

    Counts and checksums are compared per bucket; writers need not stop. The exit code is 1 if they
    differ.

    Example:

      fluss-orchestrate mirror verify sales.customers --to sql:customers --sink-env url=WAREHOUSE
    """
    with metered(f"verifying {place.path}") as meter:
        found = _compared(session, place, keys_shown_max=keys, progress=meter.follow)
        meter.rows = found.rows
    session.answer(found.to_json(), lambda: str(found))
    _end(found.equal)


class OnLogTables(StrEnum):
    skip = "skip"
    append = "append"


@app.command()
@with_session
def database(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="DATABASE", help="The database.")],
    to: ToOption,
    sink_option: SinkOption = None,
    sink_env: SinkEnvOption = None,
    catalog: CatalogOption = None,
    include: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Only these tables; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Not these tables; repeatable.")
    ] = None,
    on_log_tables: Annotated[
        OnLogTables, typer.Option(help="Tables without a key: leave out, or write new rows.")
    ] = OnLogTables.skip,
    tables_at_once: Annotated[int, typer.Option(min=1, help="How many at the same time.")] = 4,
    run_key: RunKeyOption = None,
    store: StoreOption = None,
) -> None:
    """Mirror all key tables of a database that match, new ones included.

    In --to, {table} and {database} stand for the names. A table that fails does not stop the
    others; the exit code is 1 then.

    Example:

      fluss-orchestrate mirror database sales --to 'sql:{table}' --sink-env url=WAREHOUSE
    """
    from fluss_client.engine import table_info
    from fluss_orchestrate.core.mirror.databases import mirror_database

    if "{table}" not in to:
        raise UsageError("--to has no {table}: all tables would be written into one")

    def open_sink(path: TablePath) -> Sink:
        keyed = table_info(session.connection, path).has_primary_key()
        place = to.replace("{table}", path.table_name).replace("{database}", path.database_name)
        form = "mirror" if keyed else "append"
        return sink_options(place, catalog, sink_option, sink_env, form).open(session, [])

    summary = mirror_database(
        session.connection,
        name,
        open_sink,
        run_key or made_run_key(),
        include=include or "*",
        exclude=exclude or (),
        tables_at_once=tables_at_once,
        on_log_tables=on_log_tables.value,
        store=open_store(session.connection, store),
        on_failure="return",
    )
    lines = [
        [
            str(one.table),
            "failed" if one.error is not None else one.kind,
            "" if one.result is None else str(one.result.rows),
            "" if one.error is None else str(one.error),
        ]
        for one in summary.tables
    ]
    session.answer(summary.to_json(), lambda: table(["table", "what", "rows", "error"], lines))
    _end(not summary.failed)


def _end(good: bool) -> None:
    """End with the exit code of a failure, after the answer was given."""
    if not good:
        raise typer.Exit(FAILED)
