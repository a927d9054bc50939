"""`fluss-orchestrate scan`: what is new since the last run, exactly once."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluss_orchestrate.cli.options import ColumnsOption, StoreOption, TableArgument, names
from fluss_orchestrate.cli.output import count
from fluss_orchestrate.cli.parsing import moment, path_of
from fluss_orchestrate.cli.progress import metered
from fluss_orchestrate.cli.session import Session, with_session
from fluss_orchestrate.cli.sinks import open_sink
from fluss_orchestrate.cli.stores import open_store

if TYPE_CHECKING:
    from fluss_orchestrate.core.incremental.reading import ScanProgress


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
    checkpoint: Annotated[str, typer.Option("--name", help="The checkpoint's name.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="SINK",
            help="screen, parquet:DIR, iceberg:namespace.table, fluss:database.table",
        ),
    ] = "screen",
    run_key: Annotated[
        str | None,
        typer.Option(help="Names this run for good; a run that died goes on under the same key."),
    ] = None,
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
    catalog: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|KEY=VALUE",
            help="For iceberg: a catalog of your pyiceberg configuration, or its properties.",
        ),
    ] = None,
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
    on_recreated: Annotated[
        OnRecreated, typer.Option(rich_help_panel=_POLICIES)
    ] = OnRecreated.fail,
) -> None:
    """Bring what is new since the last run into a sink, and move the checkpoint.

    Run it again after any crash: each row arrives once in Parquet, Iceberg and Fluss sinks. What
    an earlier run left unfinished is finished first. Rows may come twice on the screen.

    Examples:

      fluss-orchestrate scan sales.events --name events-to-files --to parquet:/data/events

      fluss-orchestrate scan sales.orders --name audit --metadata _change_type,_offset
    """
    from fluss_orchestrate.core.incremental import IncrementalScan
    from fluss_orchestrate.core.job import run_increment

    path_of(name)
    begin = moment(session, name, start, ("earliest", "latest", "state"), "--start")
    end = moment(session, name, until, ("latest", "lake"), "--until")
    shown: list[dict[str, Any]] = []
    sink = open_sink(session, to, catalog or (), shown)
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
        on_recreated=on_recreated.value,
    )
    with metered(f"scanning {name}") as meter:

        def tell(now: ScanProgress) -> None:
            meter.at(now.rows, now.offsets, now.offsets_total)

        result = run_increment(
            scanning,
            sink,
            run_key or made_run_key(),
            end,
            max_offsets=max_offsets,
            progress=tell,
        )
        meter.rows = result.rows
    answer: dict[str, Any] = {
        "receipt": result.receipt.to_json(),
        "adopted": [r.to_json() for r in result.adopted],
        "rows": result.rows,
    }
    if to == "screen":
        answer["data"] = shown
        if not session.as_json:
            return
    adopted = f", {count(len(result.adopted), 'earlier run')} finished" if result.adopted else ""
    session.answer(answer, lambda: f"{count(result.rows, 'row')} to {to}{adopted}")


def made_run_key() -> str:
    """A key for a run that was not given one: who, where and when."""
    import datetime as dt
    import getpass
    import socket

    now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")
    return f"cli/{getpass.getuser()}@{socket.gethostname()}/{now}"
