"""`fluss-orchestrate partitions`: list, create and drop them, and keep a window of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fluss_orchestrate.cli.connecting import key_values
from fluss_orchestrate.cli.options import StoreOption, TableArgument, YesOption, group, make_sure
from fluss_orchestrate.cli.parsing import path_of
from fluss_orchestrate.cli.presentation.output import count, table
from fluss_orchestrate.cli.session import Session, existing_store, with_session

app = group("List, create and drop partitions, and keep a window of them.")

SpecArgument = Annotated[
    list[str], typer.Argument(metavar="KEY=VALUE", help="A value for each partition column.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Drop also what readers or the lake still need.")
]


@app.command()
@with_session
def ls(session: Session, name: TableArgument) -> None:
    """List the partitions of a table.

    Example:

      fluss-orchestrate partitions ls sales.events
    """
    info = session.admin.get_table_info(path_of(name)).result()
    infos = session.admin.list_partition_infos(path_of(name)).result()
    found = [
        {
            "partition": p.partition_name,
            "partition_id": p.partition_id,
            "values": dict(p.spec),
            "buckets": info.bucket_count_of(p),
        }
        for p in sorted(infos, key=lambda p: p.partition_name)
    ]
    shown = ["partition", "partition_id", "buckets"]
    session.answer(
        found,
        lambda: table(["partition", "id", "buckets"], [[f[k] for k in shown] for f in found]),
    )


@app.command()
@with_session
def create(session: Session, name: TableArgument, values: SpecArgument) -> None:
    """Create a partition; one that exists is left as it is.

    Example:

      fluss-orchestrate partitions create sales.events day=20261116
    """
    spec = key_values(values, "partition")
    session.admin.create_partition(path_of(name), spec, ignore_if_exists=True).result()
    session.answer({"table": name, "partition": spec}, lambda: f"created {_text(spec)}")


@app.command()
@with_session
def drop(
    session: Session,
    name: TableArgument,
    values: SpecArgument,
    force: ForceOption = False,
    store: StoreOption = None,
    yes: YesOption = False,
) -> None:
    """Drop a partition with all its rows.

    One that a checkpoint has not read or the lake does not hold yet stays, and why is said. Scans
    that have read the partition to its end go on without it.

    Example:

      fluss-orchestrate partitions drop sales.events day=20261101 --yes
    """
    from fluss_client.errors import PartitionNotExistError
    from fluss_orchestrate.core.provisioning.dropping import drop_partitions

    spec = key_values(values, "partition")
    make_sure(f"drop partition {_text(spec)} of {name} with all its rows", yes)
    kept = existing_store(session.connection, store)
    if not drop_partitions(session.connection, path_of(name), [spec], store=kept, force=force):
        raise PartitionNotExistError(f"{name} has no partition {_text(spec)}")
    session.answer({"table": name, "partition": spec}, lambda: f"dropped {_text(spec)}")


@app.command()
@with_session
def window(
    session: Session,
    name: TableArgument,
    unit: Annotated[str, typer.Option(help="hour, day, month, quarter or year.")] = "day",
    ahead: Annotated[int, typer.Option(min=0, help="How many after the current one exist.")] = 2,
    retain: Annotated[
        int | None, typer.Option(min=0, help="How many before the current one stay (all).")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="The column that holds the time, if there are several.")
    ] = None,
    other: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B", help="Values of a further partition column."),
    ] = None,
    time_zone: Annotated[str, typer.Option(help="Where days begin.")] = "UTC",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, change nothing.")] = False,
    force: ForceOption = False,
    store: StoreOption = None,
    yes: YesOption = False,
) -> None:
    """Create the next partitions by time, and drop those past retention.

    A partition that a checkpoint has not read or the lake does not hold yet stays, and why is
    said. Nothing is asked when nothing is dropped.

    Example:

      fluss-orchestrate partitions window sales.events --unit day --ahead 3 --retain 30
    """
    from fluss_orchestrate.core.provisioning import (
        PartitionWindow,
        apply_partition_window,
        plan_partition_window,
    )

    others = {k: v.split(",") for k, v in key_values(other or (), "--other").items()}
    path_of(name)
    wanted = PartitionWindow(name, unit, ahead, retain, key, others, time_zone)
    planned = plan_partition_window(
        session.connection,
        wanted,
        guards=() if force else None,
        store=existing_store(session.connection, store),
    )
    if not dry_run:
        if planned.drop:
            names = ", ".join(p.partition_name for p in planned.drop)
            what = f"drop {count(len(planned.drop), 'partition')} of {name} with all rows: {names}"
            make_sure(what, yes)
        planned = apply_partition_window(session.connection, planned)

    def show() -> Any:
        lines = [f"create {_text(dict(spec))}" for spec in planned.create]
        lines += [f"drop {p.partition_name}" for p in planned.drop]
        lines += [f"keep {p.partition_name}: {why}" for p, why in planned.kept]
        return lines or "nothing to change"

    session.answer({**planned.to_json(), "dry_run": dry_run}, show)


def _text(spec: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in spec.items())
