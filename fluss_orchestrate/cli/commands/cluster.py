"""`fluss-orchestrate cluster`: a real Fluss on this machine, started and stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluss_orchestrate.cli.options import JsonOption, group
from fluss_orchestrate.cli.presentation.output import console, pairs, table

if TYPE_CHECKING:
    from fluss_client.testing import ClusterInfo, ClusterStatus, LocalCluster

NOT_RUNNING_EXIT_CODE = 3

app = group("Start and stop a real Fluss cluster on this machine (127.0.0.1 only).")

DirOption = Annotated[
    Path | None,
    typer.Option("--dir", help="The cluster's directory (default: in the user's state directory)."),
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
    tablet_heap: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The Java heap of each tablet server (default: 1g)."),
    ] = None,
    sasl: Annotated[
        bool | None, typer.Option("--sasl", help="Add listeners that ask for user and password.")
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="iceberg|iceberg-rest",
            help="Configure a lake for tables, its catalog in SQLite or behind a REST server.",
        ),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option(
            metavar="s3", help="Start an S3 server, too, for remote logs, snapshots and the lake."
        ),
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

      fluss-orchestrate cluster up --remote s3 --lake iceberg-rest

      fluss-orchestrate cluster up --dir /tmp/c --tablet-heap 2g --config kv.snapshot.interval=1min
    """
    cluster = _cluster(
        directory, tablet_servers, sasl, lake, port, _parse_config(config), tablet_heap, remote
    )
    info = cluster.up(fresh=fresh)
    print(info.to_json()) if as_json else _show_info(info)


@app.command()
def down(directory: DirOption = None, as_json: JsonOption = False) -> None:
    """Stop the cluster; its data stays.

    Stops the recorded processes only: tablet servers, coordinator, ZooKeeper, each waited for.

    Example:

      fluss-orchestrate cluster down --dir /tmp/c
    """
    cluster = _cluster(directory)
    cluster.down()
    status = cluster.status()
    print(status.to_json()) if as_json else print(f"stopped: {status.dir}")


@app.command()
def status(directory: DirOption = None, as_json: JsonOption = False) -> None:
    """Say how the cluster is; exit code 0 when all of it serves, 3 when not.

    Example:

      fluss-orchestrate cluster status --json
    """
    now = _cluster(directory).status()
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
    from fluss_client.testing import log_tail

    path = _cluster(directory).log_path(name)
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
    cluster = _cluster(directory)
    cluster.kill(name)
    print(cluster.status().to_json()) if as_json else print(f"killed: {name}")


@app.command()
def start(name: NameArgument, directory: DirOption = None, as_json: JsonOption = False) -> None:
    """Start one server again and wait until it serves.

    Example:

      fluss-orchestrate cluster start tablet-1
    """
    info = _cluster(directory).start(name)
    print(info.to_json()) if as_json else print(f"started: {name} (pid {info.pids[name]})")


def _cluster(directory: Path | None, *options: Any) -> LocalCluster:
    from fluss_client.testing import LocalCluster

    return LocalCluster(directory, *options)


def _parse_config(lines: list[str] | None) -> dict[str, str] | None:
    from fluss_client.testing import LocalClusterError

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
    facts = {"bootstrap.servers": info.bootstrap_servers}
    if info.sasl_bootstrap_servers:
        facts["with SASL"] = info.sasl_bootstrap_servers
        for user, password in info.users.items():
            facts[f"user {user}"] = f"password {password}"
    if info.lake:
        facts["lake catalog"] = f"{info.lake['name']} at {info.lake['uri']}"
    if info.storage:
        facts["bucket"] = f"{info.bucket} at {info.storage['s3.endpoint']}"
        facts["access key"] = info.storage["s3.access-key-id"]
        facts["secret key"] = info.storage["s3.secret-access-key"]
    facts["Fluss"] = f"{info.fluss_version}, {len(info.pids)} processes"
    facts["directory"] = info.dir
    console().print(pairs(facts), soft_wrap=True)


def _show_status(now: ClusterStatus) -> None:
    rows = [
        [
            name,
            server.state,
            str(server.pid or "-"),
            " ".join(f"{listener}:{port}" for listener, port in server.ports.items()),
        ]
        for name, server in now.servers.items()
    ]
    if rows:
        console().print(table(["server", "state", "pid", "ports"], rows))
    answer = "answers" if now.answering else "does not answer"
    print(f"{now.state}, {answer}: {now.dir}")
