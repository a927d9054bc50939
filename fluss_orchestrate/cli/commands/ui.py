"""`fluss-orchestrate ui`: the console in a browser."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fluss_orchestrate.cli.connecting import read_password
from fluss_orchestrate.cli.options import StoreOption
from fluss_orchestrate.cli.session import Session, open_store, with_session

if TYPE_CHECKING:
    from fluss_orchestrate.console.service import Console

TOKEN_VARIABLE = "FLUSS_CONSOLE_TOKEN"  # noqa: S105 (the name of the variable)


@with_session
def ui(
    session: Session,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    interval: Annotated[
        float, typer.Option(min=0.5, metavar="SECONDS", help="Between two looks at the cluster.")
    ] = 5.0,
    allow_actions: Annotated[
        bool,
        typer.Option("--allow-actions", help="Let viewers reset, abandon, tier, drop partitions."),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"Holds the token (else {TOKEN_VARIABLE})."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Where a proxy serves it, such as https://fluss.example."),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Keep samples for charts on disk.")
    ] = True,
    opentelemetry: Annotated[
        bool,
        typer.Option(
            "--opentelemetry", help="Export the metrics by OTLP, as OTEL_* variables say."
        ),
    ] = False,
    store: StoreOption = None,
) -> None:
    """Show tables, checkpoints, lakes and loads in a browser, until Ctrl-C.

    On 127.0.0.1 everybody on this machine may look. Any other address needs a token; put a proxy
    that ends TLS before it.

    Examples:

      fluss-orchestrate ui

      fluss-orchestrate ui --host 0.0.0.0 --token-file ~/.config/fluss-console.token
    """
    from fluss_client.errors import MissingExtraError

    try:
        from fluss_orchestrate.console.access import LocalAccess
        from fluss_orchestrate.console.app import create_app
        from fluss_orchestrate.console.service import Console, Settings
        from fluss_orchestrate.console.serving import serve
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "console") from None
    from fluss_orchestrate.core.overview.samples import Samples, samples_path

    token = os.environ.get(TOKEN_VARIABLE) or None
    if token_file is not None:
        token = read_password(token_file.expanduser()).strip()
    connection = session.connection
    config = connection.config
    path = samples_path(config.resolved_alias(), config.resolved_bootstrap())
    console = Console(
        connection,
        None if store is None else open_store(connection, store),
        Samples(path) if record else None,
        Settings(interval_s=interval, actions=allow_actions),
    )
    app = LocalAccess(
        create_app(console, origins=tuple(origin or ())),
        host,
        token,
        may_act=allow_actions,
        user=getpass.getuser(),
    )
    with console, _exporting(console) if opentelemetry else nullcontext():
        serve(app, host, port, lambda url: print(f"{url}  (Ctrl-C ends it)", flush=True))
    sys.stdout.flush()


@contextmanager
def _exporting(console: Console) -> Iterator[None]:
    """Export the metrics until the block ends."""
    from fluss_orchestrate.console import opentelemetry

    provider = opentelemetry.provider()
    opentelemetry.observe(lambda: console.monitor.look(0), provider.get_meter(opentelemetry.SCOPE))
    try:
        yield
    finally:
        shutdown = getattr(provider, "shutdown", None)
        if shutdown is not None:
            shutdown()
