"""Serving a console by itself, with uvicorn."""

from __future__ import annotations

import logging
import socket

import uvicorn
from starlette.types import ASGIApp

from fluss_client.errors import ConfigError

KEEP_ALIVE_S = 30
GRACE_S = 3
BACKLOG = 128
log = logging.getLogger(__name__)


def serve(app: ASGIApp, host: str, port: int, announce: object = None) -> None:
    """Serve the console until a signal ends it. Blocks.

    Args:
        app: The console with its access.
        host: The address to listen on.
        port: The port; 0 for a free one.
        announce: Called with the address when the server listens.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Whoever reads the announced address may connect at once, before uvicorn accepts.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"the console cannot listen on {host}:{port}: {error.strerror}; give another --port"
        ) from error
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        lifespan="off",
    )
    if callable(announce):
        shown = f"[{host}]" if ":" in host else host
        announce(f"http://{shown}:{listener.getsockname()[1]}/")
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()
