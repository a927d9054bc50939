"""Every command with the module that holds it, in the order of `--help`."""

from __future__ import annotations

from collections.abc import Callable

import typer

from fluss_orchestrate.cli import (
    bulk_load,
    checkpoint_changes,
    checkpoint_moves,
    checkpoints,
    cluster,
    databases,
    demo,
    doctor,
    embedded,
    lake,
    lookup,
    offsets,
    partitions,
    read,
    scan,
    status,
    tables,
    write,
)

# These hang their commands on the group of checkpoints as they are imported.
EXTENSIONS = (checkpoint_changes, checkpoint_moves)

COMMANDS: dict[str, typer.Typer | Callable[..., None]] = {
    "databases": databases.app,
    "tables": tables.app,
    "partitions": partitions.app,
    "offsets": offsets.offsets,
    "read": read.read,
    "write": write.write,
    "lookup": lookup.lookup,
    "scan": scan.scan,
    "checkpoints": checkpoints.app,
    "lake": lake.app,
    "bulk-load": bulk_load.bulk_load,
    "status": status.status,
    "cluster": cluster.app,
    "embedded": embedded.app,
    "demo": demo.demo,
    "doctor": doctor.doctor,
}


def add_commands(app: typer.Typer) -> None:
    """Hang every command and group on the root."""
    for name, command in COMMANDS.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
