"""`fluss-orchestrate lake`: how far the lake is, waiting for it, filling and maintaining it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fluss_orchestrate.cli.options import TableArgument, YesOption, group, make_sure
from fluss_orchestrate.cli.parsing import moment, path_of
from fluss_orchestrate.cli.presentation.failures import UsageError
from fluss_orchestrate.cli.presentation.output import ago, count, table
from fluss_orchestrate.cli.presentation.progress import metered
from fluss_orchestrate.cli.session import Session, with_session

app = group("See how far a table's lake is, wait for it, fill and maintain it.")


@app.command()
@with_session
def status(session: Session, name: TableArgument) -> None:
    """Show the lake's snapshot and how far each bucket is behind the log.

    Example:

      fluss-orchestrate lake status sales.events
    """
    from fluss_orchestrate.core.lake import lake_status

    now = lake_status(session.connection, path_of(name))
    rows = [
        [b.partition, b.bucket, b.lake_offset, b.latest, b.lag_offsets, ago(b.lag_ms)]
        for b in now.buckets
    ]
    headers = ["partition", "bucket", "lake", "log", "behind", "oldest"]
    said = (
        f"snapshot {now.snapshot_id or 'none yet'}, {count(now.lag_offsets, 'row')} behind, "
        f"the oldest is {ago(now.lag_ms)} old"
    )
    session.answer(now.to_json(), lambda: [table(headers, rows, "no buckets"), said])


@app.command()
@with_session
def wait(
    session: Session,
    name: TableArgument,
    covers: Annotated[
        str, typer.Option(help="latest, a time, offsets, or @receipt.json.")
    ] = "latest",
    timeout: Annotated[
        float | None, typer.Option(min=0.0, metavar="SECONDS", help="Give up after so long.")
    ] = None,
) -> None:
    """Wait until the lake holds everything up to a point; exit code 1 if it does not in time.

    The point is looked up once: rows that come later do not prolong the wait.

    Example:

      fluss-orchestrate lake wait sales.events --covers 2026-11-16T00:00Z --timeout 600
    """
    from fluss_orchestrate.core.lake import wait_for_snapshot_blocking

    target = moment(session, name, covers, ("latest",), "--covers")
    snapshot = wait_for_snapshot_blocking(
        session.connection, path_of(name), target, timeout_s=timeout
    )
    held = [
        [bucket.partition_id, bucket.bucket_id, offset]
        for bucket, offset in sorted(snapshot.table_buckets_offset.items())
    ]
    session.answer(
        {"table": name, "snapshot_id": snapshot.snapshot_id, "offsets": held},
        lambda: f"snapshot {snapshot.snapshot_id} holds it",
    )


@app.command()
@with_session
def tier(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="TABLE", help="database.table")] = None,
    worker: Annotated[
        bool,
        typer.Option(
            "--worker", help="Serve every table that the coordinator hands out, on and on."
        ),
    ] = False,
    yes: YesOption = False,
) -> None:
    """Bring what is in a table into its lake, without Flink.

    For places where no other tiering service works on the table. With --worker it goes on until
    it is stopped (Ctrl-C).

    Examples:

      fluss-orchestrate lake tier sales.events --yes

      fluss-orchestrate lake tier --worker --yes
    """
    from fluss_orchestrate.core.lake import TieringWorker
    from fluss_orchestrate.core.lake import tier_table as bring

    if worker == (name is not None):
        raise UsageError("give a table, or --worker for all that the coordinator hands out")
    place = "the cluster" if name is None else name
    make_sure(f"tier {place} in the place of the cluster's own tiering service", yes)
    if name is None:
        session.note("serving the coordinator; Ctrl-C ends it")
        TieringWorker(
            session.connection,
            allow_tiering=True,
            on_receipt=lambda done: session.note(f"{done.table.path}: {_said(done)}"),
        ).run()
        return
    with metered(f"tiering {name}") as meter:
        receipt = bring(
            session.connection,
            path_of(name),
            allow_tiering=True,
            progress=lambda rows, total: meter.at(rows, rows, total),
        )
        meter.rows = receipt.rows
    session.answer(receipt.to_json(), lambda: _said(receipt))


@app.command()
@with_session
def maintain(
    session: Session,
    name: TableArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting, such as snapshot_age_ms=0."),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Compact a table's lake, expire old snapshots, and delete files that nobody needs.

    Rows do not change. Snapshots that Fluss knows, and those that a tag in Iceberg names, stay.

    Examples:

      fluss-orchestrate lake maintain sales.orders --dry-run

      fluss-orchestrate lake maintain sales.orders --set snapshot_age_ms=86400000 --yes
    """
    from fluss_orchestrate.core.lake import MaintenanceSettings, maintain_lake

    pairs = [text.partition("=") for text in setting or ()]
    wrong = [key for key, equals, _ in pairs if not equals]
    if wrong:
        raise UsageError(f"--set takes NAME=VALUE, not '{wrong[0]}'")
    settings = MaintenanceSettings.of({key: value for key, _, value in pairs})
    if not dry_run:
        make_sure(f"rewrite and delete files in the lake of {name}", yes)
    done = maintain_lake(session.connection, path_of(name), settings=settings, dry_run=dry_run)
    session.answer(done.to_json(), lambda: str(done))


def _said(receipt: Any) -> str:
    if not receipt.rows:
        return "the lake held everything already"
    return f"{count(receipt.rows, 'row')} into snapshot {receipt.snapshot_id}"
