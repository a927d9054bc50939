"""The console of every Fluss connection: `/fluss/<connection id>/…` in Airflow's API server.

A request without a user of Airflow gets 401 from here, before any page of the console sees it; one
without the right to look gets 403. Each process of the API server looks at a cluster only while
somebody has one of its pages open.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fluss_client.errors import FlussError
from fluss_orchestrate.airflow.console import rights
from fluss_orchestrate.airflow.hooks import FlussHook, client_for
from fluss_orchestrate.airflow.run_context import RUN_KEY_PREFIX
from fluss_orchestrate.airflow.version_compat import AirflowNotFoundException, conf

IDLE_S = 120.0
INTERVAL_S = 10.0
CONSOLES_MAX = 64
RUN_PART_LENGTH_MAX = 250
ENVIRONMENT_PREFIX = "AIRFLOW_CONN_"
log = logging.getLogger(__name__)


class AirflowConsoles:
    """The consoles of all Fluss connections, made when somebody first looks at one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._apps: dict[tuple[int, str], ASGIApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        answer = await self._answer(request)
        if isinstance(answer, Response):
            await self._with_headers(answer)(scope, receive, send)
            return
        app, inner = answer
        await app(inner, receive, send)

    def _with_headers(self, answer: Response) -> ASGIApp:
        from fluss_orchestrate.console.rendering import SecurityHeaders

        return SecurityHeaders(answer, "'self'")

    async def _answer(self, request: Request) -> Response | tuple[ASGIApp, Scope]:
        from fluss_orchestrate.console.access import VIEWER, Viewer

        user = await rights.user_of(request)
        if user is None:
            return PlainTextResponse("log in to Airflow first", int(HTTPStatus.UNAUTHORIZED))
        if not await rights.may_look(user):
            return PlainTextResponse(
                f"you have no right to the view '{rights.RESOURCE}'", HTTPStatus.FORBIDDEN
            )
        scope = request.scope
        root = scope.get("root_path", "")
        connection_id, slash, _ = scope["path"].removeprefix(root).lstrip("/").partition("/")
        if not connection_id:
            return await self._index(request, user)
        if not slash:
            return RedirectResponse(f"{root}/{quote(connection_id, safe='')}/")
        if not await rights.may_look(user, connection_id):
            return PlainTextResponse("this connection is of another team", HTTPStatus.FORBIDDEN)
        try:
            app = await asyncio.to_thread(self._app, connection_id)
        except AirflowNotFoundException:
            return PlainTextResponse(
                f"there is no Fluss connection '{connection_id}'", HTTPStatus.NOT_FOUND
            )
        except FlussError as error:
            return PlainTextResponse(" ".join(str(error).split()), HTTPStatus.BAD_GATEWAY)
        viewer = Viewer(str(user.get_name()), await rights.may_act(user, connection_id))
        inner = {**scope, "root_path": f"{root}/{connection_id}", VIEWER: viewer}
        return app, inner

    async def _index(self, request: Request, user: Any) -> Response:
        from fluss_orchestrate.console import rendering

        found = await asyncio.to_thread(fluss_connections)
        shown = [each for each in found if await rights.may_look(user, each)]
        root = request.scope.get("root_path", "")
        run = _runs_of(request)
        path = f"checkpoints?{urlencode({'run': run})}" if run else ""
        if len(shown) == 1:
            return RedirectResponse(f"{root}/{quote(shown[0], safe='')}/{path}")
        values = {"connections": shown, "path": path, "run": run}
        return rendering.page(request, "connections.html", values)

    def _app(self, connection_id: str) -> ASGIApp:
        key = (os.getpid(), connection_id)
        with self._lock:
            found = self._apps.get(key)
            if found is None:
                if len(self._apps) >= CONSOLES_MAX:
                    raise AirflowNotFoundException(f"more than {CONSOLES_MAX} consoles")
                found = self._apps[key] = _made(connection_id)
        return found


def _runs_of(request: Request) -> str:
    """Return how the run keys of a DAG or a task begin, if a tab asks for one; else empty."""
    parts = [request.query_params.get(name, "")[:RUN_PART_LENGTH_MAX] for name in ("dag", "task")]
    if not parts[0]:
        return ""
    return "/".join([RUN_KEY_PREFIX, *(part for part in parts if part), ""])


def _made(connection_id: str) -> ASGIApp:
    """Make the console of a connection. It looks at the cluster while somebody looks at it."""
    from fluss_orchestrate.console.access import FormTokens
    from fluss_orchestrate.console.app import create_app
    from fluss_orchestrate.console.service import Console, Settings
    from fluss_orchestrate.core.overview.samples import Samples, samples_path

    hook = FlussHook(connection_id)
    if hook.get_connection(connection_id).conn_type != FlussHook.conn_type:
        raise AirflowNotFoundException(f"connection '{connection_id}' is of another type")
    config = hook.get_config()
    client = client_for(config)
    settings = Settings(
        interval_s=conf.getfloat("fluss", "console_interval", fallback=INTERVAL_S),
        idle_s=IDLE_S,
        actions=conf.getboolean("fluss", "console_actions", fallback=False),
    )
    path = samples_path(config.resolved_alias(), config.resolved_bootstrap())
    try:
        samples: Samples | None = Samples(path)
    except OSError as error:
        log.warning("the console keeps no history: %s cannot be used: %s", path, error)
        samples = None
    console = Console(client, None, samples, settings).start()
    return create_app(console, FormTokens(_key(connection_id)), framed_by="'self'")


def _key(connection_id: str) -> bytes | None:
    """Return the key of form tokens: the same in every process of the API server."""
    secret = conf.get("api", "secret_key", fallback="") or ""
    if not secret:
        return None
    return hashlib.sha256(f"fluss console\n{connection_id}\n{secret}".encode()).digest()


def fluss_connections() -> list[str]:
    """Return the ids of the connections that have a console. Blocks."""
    named = conf.get("fluss", "console_connections", fallback="") or ""
    if named.strip():
        return [each.strip() for each in named.split(",") if each.strip()]
    return sorted({*_in_database(), *_in_environment()})


def _in_database() -> list[str]:
    from airflow.models import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = select(Connection.conn_id).where(Connection.conn_type == FlussHook.conn_type)
    with create_session() as session:
        return [str(each) for each in session.scalars(query)]


def _in_environment() -> list[str]:
    ids = [
        variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        for variable in os.environ
        if variable.startswith(ENVIRONMENT_PREFIX)
    ]
    return [each for each in ids if _type_of(each) == FlussHook.conn_type]


def _type_of(connection_id: str) -> str:
    try:
        return str(FlussHook(connection_id).get_connection(connection_id).conn_type)
    except Exception:  # noqa: BLE001 - another provider's connection, which cannot be read here
        return ""
