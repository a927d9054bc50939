"""`fluss-orchestrate scan`: write what is new since the last run into a sink, exactly once.

The sinks and their fields come from the declarations in `core/sinks`. Importing these takes a
second, so it is done when the command runs or shows its help, and not when the program starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluss_orchestrate.cli.connecting import Target, connect, key_values
from fluss_orchestrate.cli.options import (
    CatalogOption,
    ColumnsOption,
    Command,
    OnLateRows,
    RunKeyOption,
    SinkEnvOption,
    SinkOption,
    StoreOption,
    TableArgument,
    names,
)
from fluss_orchestrate.cli.parsing import moment, path_of
from fluss_orchestrate.cli.presentation.failures import UsageError
from fluss_orchestrate.cli.presentation.output import count, datum
from fluss_orchestrate.cli.presentation.progress import metered
from fluss_orchestrate.cli.session import Session, open_store, with_session
from fluss_orchestrate.core.sinks.registry import (
    FieldKind,
    SinkDeclaration,
    declarations,
    environment_value,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss_orchestrate.core.sinks import Sink

SCREEN = "screen"
TO_HELP = "Where the rows are written"
OPTION_HELP = "A field of the sink, repeatable"


class ScanCommand(Command):
    """The command, whose help lists the sinks that are declared."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the help, with the sinks and their fields filled in."""
        texts = {
            "to": f"{TO_HELP}: {sink_forms()}.",
            "sink_option": f"{OPTION_HELP}: {field_names()}.",
        }
        for option in self.params:
            if option.name in texts:
                option.help = texts[option.name]  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def sink_forms() -> str:
    """Return the values of `--to`, as text."""
    forms = [f"{one.short_name}:{one.place}" for one in declarations().values()]
    return ", ".join([SCREEN, *forms])


def field_names() -> str:
    """Return the fields of the sinks that are given with `--sink-option`, as text."""
    found = []
    for one in declarations().values():
        names = [
            f"{f.name}.KEY" if f.kind is FieldKind.PROPERTIES else f.name
            for f in one.fields[1:]
            if not f.is_secret
        ]
        found.append(f"{one.short_name}: {', '.join(names)}")
    return "; ".join(found)


@dataclass(frozen=True)
class SinkOptions:
    """What the command line says about the sink."""

    to: str
    catalog: Sequence[str] = ()
    options: Sequence[str] = ()
    variables: Sequence[str] = ()

    def open(self, session: Session, shown: list[dict[str, Any]]) -> Sink:
        """Open the sink; rows for a screen that wants JSON are collected in `shown`.

        Raises:
            UsageError: The sink or one of its fields does not exist, or a field is missing.
            ConfigError: An environment variable is not set.
        """
        from fluss_orchestrate.core.sinks import FunctionSink

        if self.to == SCREEN:
            if self.catalog or self.options or self.variables:
                raise UsageError(
                    "--catalog is for --to iceberg:namespace.table, --sink-option and --sink-env "
                    "are for sinks with fields: the screen has none"
                )
            return FunctionSink(_gather(shown) if session.as_json else _print)
        declared, place = self._declared()
        values = {declared.fields[0].name: place, **self._values(declared, session)}
        missing = [f.name for f in declared.fields if f.is_required and f.name not in values]
        if missing:
            raise UsageError(
                f"--to {self.to} needs {', '.join(missing)}: give "
                + " ".join(f"--sink-env {name}=VARIABLE" for name in missing)
            )
        return declared.open(values, session.connection)

    def _declared(self) -> tuple[SinkDeclaration, str]:
        kind, _, place = self.to.partition(":")
        for one in declarations().values():
            # A place such as namespace.table has a dot.
            if kind == one.short_name and place and ("." in place or "." not in one.place):
                return one, place
        raise UsageError(f"--to '{self.to}' is no sink: give one of {sink_forms()}")

    def _values(self, declared: SinkDeclaration, session: Session) -> dict[str, Any]:
        """Return the values of the options by field."""
        fields = {field.name: field for field in declared.fields}
        values: dict[str, Any] = {}
        if "catalog" in fields:
            values["catalog"] = self._catalog()
        elif self.catalog:
            raise UsageError(f"--catalog is for --to iceberg:namespace.table, not for {self.to}")
        for text in self.options:
            name, key, value = _parsed(text, "--sink-option", declared)
            field = fields[name]
            if field.is_secret:
                raise UsageError(
                    f"--sink-option {name} would show a secret to everybody on this machine: give "
                    f"--sink-env {name}=VARIABLE"
                )
            if key:
                values.setdefault(name, {})[key] = value
            elif field.kind is FieldKind.NAMES:
                values.setdefault(name, []).append(value)
            elif field.kind is FieldKind.FLAG:
                values[name] = _flag(name, value)
            elif field.kind is FieldKind.CLUSTER:
                values[name] = connect(Target(profile=value))
            else:
                values[name] = value
        for text in self.variables:
            name, key, variable = _parsed(text, "--sink-env", declared)
            secret = environment_value(variable)
            if key:
                values.setdefault(name, {})[key] = secret
            else:
                values[name] = secret
        return values

    def _catalog(self) -> Any:
        named = any(text.startswith("catalog.") for text in (*self.options, *self.variables))
        if len(self.catalog) == 1 and "=" not in self.catalog[0]:
            if named:
                raise UsageError("--catalog NAME says it all: leave catalog.KEY out")
            from fluss_orchestrate.core.lake.catalog import open_named_catalog

            return open_named_catalog(self.catalog[0])
        if not self.catalog and not named:
            raise UsageError(
                "--to iceberg needs --catalog NAME of your pyiceberg configuration, or "
                "--catalog type=sql --catalog uri=sqlite:///... --catalog warehouse=..."
            )
        return key_values(self.catalog, "--catalog")


def _parsed(text: str, option: str, declared: SinkDeclaration) -> tuple[str, str, str]:
    """Split `FIELD=VALUE` or `FIELD.KEY=VALUE` into its three parts."""
    ((path, value),) = key_values([text], option).items()
    name, _, key = path.partition(".")
    fields = {field.name: field for field in declared.fields[1:]}
    takes_key = name in fields and fields[name].kind is FieldKind.PROPERTIES
    if name not in fields or takes_key != bool(key):
        raise UsageError(
            f"{option} '{path}' is no field of --to {declared.short_name}: the fields are "
            f"{', '.join(fields)}, and of properties FIELD.KEY"
        )
    return name, key, value


def _flag(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise UsageError(f"--sink-option {name} is true or false, not '{value}'")
    return value == "true"


def _print(reader: pa.RecordBatchReader) -> None:
    """Print rows as they arrive, with tabs: columns cannot be aligned before all rows are known."""
    print("\t".join(reader.schema.names))
    for batch in reader:
        for row in batch.to_pylist():
            print("\t".join(datum(value) for value in row.values()))


def _gather(rows: list[dict[str, Any]]) -> Callable[[pa.RecordBatchReader], None]:
    def take(reader: pa.RecordBatchReader) -> None:
        for batch in reader:
            rows.extend(batch.to_pylist())

    return take


class OnPending(StrEnum):
    adopt = "adopt"
    wait = "wait"
    skip = "skip"
    fail = "fail"


class OnRetention(StrEnum):
    fail = "fail"
    earliest = "earliest"
    lake = "lake"


class OnPartitionGone(StrEnum):
    fail = "fail"
    forget = "forget"


class OnPartitionUnseen(StrEnum):
    note = "note"
    fail = "fail"


class OnRecreated(StrEnum):
    fail = "fail"
    restart = "restart"


_POLICIES = "Policies"


@with_session
def scan(
    session: Session,
    name: TableArgument,
    checkpoint: Annotated[str, typer.Option(help="The checkpoint's name.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="SINK",
            help=TO_HELP,
        ),
    ] = SCREEN,
    sink_option: SinkOption = None,
    sink_env: SinkEnvOption = None,
    run_key: RunKeyOption = None,
    start: Annotated[
        str, typer.Option(help="Where the first run begins: earliest, latest, state, a time.")
    ] = "earliest",
    until: Annotated[
        str, typer.Option(help="latest, lake, a time, offsets or @receipt.json.")
    ] = "latest",
    max_offsets: Annotated[
        int | None, typer.Option(min=1, help="At most about so many rows in this run.")
    ] = None,
    columns: ColumnsOption = None,
    metadata: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="_change_type, _offset, _timestamp, _bucket, _partition."),
    ] = None,
    catalog: CatalogOption = None,
    store: StoreOption = None,
    on_pending: Annotated[OnPending, typer.Option(rich_help_panel=_POLICIES)] = OnPending.adopt,
    on_retention: Annotated[
        OnRetention, typer.Option(rich_help_panel=_POLICIES)
    ] = OnRetention.fail,
    on_partition_gone: Annotated[
        OnPartitionGone, typer.Option(rich_help_panel=_POLICIES)
    ] = OnPartitionGone.fail,
    on_partition_unseen: Annotated[
        OnPartitionUnseen, typer.Option(rich_help_panel=_POLICIES)
    ] = OnPartitionUnseen.note,
    on_late_rows: Annotated[OnLateRows, typer.Option(rich_help_panel=_POLICIES)] = OnLateRows.read,
    on_recreated: Annotated[
        OnRecreated, typer.Option(rich_help_panel=_POLICIES)
    ] = OnRecreated.fail,
) -> None:
    """Write what is new since the last run into a sink, and move the checkpoint.

    Run it again after any crash: each row arrives once in the sink, but it may be shown twice on
    the screen. If an earlier run was not finished, it is finished first.

    Examples:

      fluss-orchestrate scan sales.events --checkpoint events-to-files --to parquet:/data/events

      fluss-orchestrate scan sales.orders --checkpoint audit --metadata _change_type,_offset

      fluss-orchestrate scan sales.events --checkpoint copy --to sql:events \
        --sink-env url=WAREHOUSE_URL
    """
    from fluss_orchestrate.core.incremental import IncrementalScan
    from fluss_orchestrate.core.job import run_increment

    path_of(name)
    begin = moment(session, name, start, ("earliest", "latest", "state"), "--start")
    end = moment(session, name, until, ("latest", "lake"), "--until")
    shown: list[dict[str, Any]] = []
    sink = SinkOptions(to, catalog or (), sink_option or (), sink_env or ()).open(session, shown)
    scanning = IncrementalScan(
        session.connection,
        name,
        checkpoint,
        open_store(session.connection, store),
        names(columns),
        begin,
        on_pending.value,
        on_retention.value,
        names(metadata) or (),
        on_partition_gone=on_partition_gone.value,
        on_partition_unseen=on_partition_unseen.value,
        on_late_rows=on_late_rows.value,
        on_recreated=on_recreated.value,
    )
    with metered(f"scanning {name}") as meter:
        result = run_increment(
            scanning,
            sink,
            run_key or made_run_key(),
            end,
            max_offsets=max_offsets,
            progress=meter.follow,
        )
        meter.rows = result.rows
    answer: dict[str, Any] = {
        "receipt": result.receipt.to_json(),
        "adopted": [r.to_json() for r in result.adopted],
        "rows": result.rows,
    }
    if to == SCREEN:
        answer["data"] = shown
        if not session.as_json:
            return
    adopted = f", {count(len(result.adopted), 'earlier run')} finished" if result.adopted else ""
    session.answer(answer, lambda: f"{count(result.rows, 'row')} to {to}{adopted}")


def made_run_key() -> str:
    """Return a run key for a run that was not given one: user, host and time."""
    import datetime as dt
    import getpass
    import socket

    now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")
    return f"cli/{getpass.getuser()}@{socket.gethostname()}/{now}"
