"""`fluss-orchestrate cluster`: a real Fluss on this machine, started and stopped."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fluss_client.testing.cluster_info import ClusterInfo, ClusterStatus
from fluss_client.testing.errors import LocalClusterError
from fluss_client.testing.local_cluster import LocalCluster
from fluss_client.testing.readiness import log_tail

NOT_RUNNING_EXIT_CODE = 3

app = typer.Typer(
    help="Start and stop a real Fluss cluster on this machine (127.0.0.1 only).",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

DirOption = Annotated[
    Path | None,
    typer.Option("--dir", help="The cluster's directory (default: in the user's state directory)."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, alone on standard output.")
]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="zookeeper, coordinator, tablet-1, tablet-2, ...")
]


@app.command()
def up(
    directory: DirOption = None,
    port: Annotated[
        int | None, typer.Option(help="The coordinator's port (default: a free one).")
    ] = None,
    tablet_servers: Annotated[
        int | None, typer.Option(help="How many tablet servers (default: 1).")
    ] = None,
    sasl: Annotated[
        bool | None, typer.Option("--sasl", help="Add listeners that ask for user and password.")
    ] = None,
    lake: Annotated[
        str | None, typer.Option(metavar="iceberg", help="Configure a lake for tables.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete the directory's earlier cluster first.")
    ] = False,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A line for server.yaml; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start a cluster, wait until it serves, and say where it is.

    Options that are left out stay as they were the last time. A cluster that is up already is
    left alone. Data and ports survive down and up.

    Examples:

      fluss-orchestrate cluster up

      fluss-orchestrate cluster up --tablet-servers 3 --sasl --lake iceberg --json

      fluss-orchestrate cluster up --dir /tmp/c --config log.segment.file-size=1mb
    """
    cluster = LocalCluster(directory, tablet_servers, sasl, lake, port, _parse_config(config))
    info = cluster.up(fresh=fresh)
    print(info.to_json()) if as_json else _show_info(info)


@app.command()
def down(directory: DirOption = None, as_json: JsonOption = False) -> None:
    """Stop the cluster; its data stays.

    Stops the recorded processes only: tablet servers, coordinator, ZooKeeper, each waited for.

    Example:

      fluss-orchestrate cluster down --dir /tmp/c
    """
    cluster = LocalCluster(directory)
    cluster.down()
    status = cluster.status()
    print(status.to_json()) if as_json else print(f"stopped: {status.dir}")


@app.command()
def status(directory: DirOption = None, as_json: JsonOption = False) -> None:
    """Say how the cluster is; exit code 0 when all of it serves, 3 when not.

    Example:

      fluss-orchestrate cluster status --json
    """
    now = LocalCluster(directory).status()
    print(now.to_json()) if as_json else _show_status(now)
    if not now.answering:
        raise typer.Exit(NOT_RUNNING_EXIT_CODE)


@app.command()
def logs(
    name: NameArgument,
    directory: DirOption = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many lines.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Print the last lines of a server's log.

    Example:

      fluss-orchestrate cluster logs tablet-1 -n 100
    """
    path = LocalCluster(directory).log_path(name)
    found = log_tail(path, lines)
    if as_json:
        print(json.dumps({"path": str(path), "lines": found}))
        return
    for line in found:
        print(line)


@app.command()
def kill(name: NameArgument, directory: DirOption = None, as_json: JsonOption = False) -> None:
    """End one server at once (SIGKILL), as a crash would.

    Example:

      fluss-orchestrate cluster kill tablet-1
    """
    cluster = LocalCluster(directory)
    cluster.kill(name)
    print(cluster.status().to_json()) if as_json else print(f"killed: {name}")


@app.command()
def start(name: NameArgument, directory: DirOption = None, as_json: JsonOption = False) -> None:
    """Start one server again and wait until it serves.

    Example:

      fluss-orchestrate cluster start tablet-1
    """
    info = LocalCluster(directory).start(name)
    print(info.to_json()) if as_json else print(f"started: {name} (pid {info.pids[name]})")


def _parse_config(lines: list[str] | None) -> dict[str, str] | None:
    if not lines:
        return None
    parsed = {}
    for line in lines:
        key, separator, value = line.partition("=")
        if not separator:
            raise LocalClusterError(f"--config {line!r} has no '=': give KEY=VALUE")
        parsed[key.strip()] = value.strip()
    return parsed


def _show_info(info: ClusterInfo) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_row("bootstrap.servers", info.bootstrap_servers)
    if info.sasl_bootstrap_servers:
        table.add_row("with SASL", info.sasl_bootstrap_servers)
        for user, password in info.users.items():
            table.add_row("user", f"{user} / {password}")
    if info.lake:
        table.add_row("lake catalog", f"{info.lake['name']} at {info.lake['uri']}")
    table.add_row("Fluss", f"{info.fluss_version}, {len(info.pids)} processes")
    table.add_row("directory", info.dir)
    Console(file=sys.stdout, soft_wrap=True, highlight=False).print(table)


def _show_status(now: ClusterStatus) -> None:
    table = Table("server", "state", "pid", "ports", box=None)
    for name, server in now.servers.items():
        ports = " ".join(f"{listener}:{port}" for listener, port in server.ports.items())
        table.add_row(name, server.state, str(server.pid or "-"), ports)
    console = Console(soft_wrap=True, highlight=False)
    if now.servers:
        console.print(table)
    answer = "answers" if now.answering else "does not answer"
    console.print(f"{now.state}, {answer}: {now.dir}")
