"""`fluss-orchestrate offsets`: where the logs of a table begin and end."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fluss_orchestrate.cli.options import TableArgument
from fluss_orchestrate.cli.parsing import path_of, time_ms
from fluss_orchestrate.cli.presentation.output import table
from fluss_orchestrate.cli.session import Session, with_session


@with_session
def offsets(
    session: Session,
    name: TableArgument,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Also the first offset committed at or after a time."),
    ] = None,
) -> None:
    """Show the earliest and the next offset of every bucket, and where a time cuts the log.

    A time is ISO 8601 with a zone, a span back from now (-15m, -2h, -7d), or milliseconds.

    Examples:

      fluss-orchestrate offsets sales.events

      fluss-orchestrate offsets sales.events --at 2026-11-16T08:00Z
    """
    from fluss_client import OffsetSpec
    from fluss_client.engine import async_connection, backend_of, run_blocking
    from fluss_orchestrate.core.incremental.planning.observation import observe_table, offsets_of
    from fluss_orchestrate.core.incremental.time.timestamps import resolve_timestamp

    path, moment = path_of(name), None if at is None else time_ms(at, "--at")
    core = async_connection(session.connection)

    async def look() -> list[dict[str, Any]]:
        view = await observe_table(core, path)
        ids = view.partition_ids()
        earliest = await offsets_of(backend_of(core), view.info, ids, OffsetSpec.earliest())
        cut = {}
        if moment is not None:
            cut = await resolve_timestamp(backend_of(core), core.config, view, moment)
        return [
            {
                "partition": view.partition_name(place),
                "bucket": place[1],
                "earliest": earliest.get(place, 0),
                "latest": latest,
                **({"at": cut.get(place)} if moment is not None else {}),
            }
            for place, latest in view.latest.items()
        ]

    found = run_blocking(look())
    headers = ["partition", "bucket", "earliest", "latest", *(["at"] if at else [])]
    session.answer(
        found, lambda: table(headers, [list(f.values()) for f in found], "no partitions")
    )
