"""Who a request to Airflow's API server is from, and what Airflow lets them do."""

from __future__ import annotations

import asyncio
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails
from starlette.requests import Request

from fluss_orchestrate.airflow.version_compat import conf

COOKIE = "_token"
RESOURCE = "Fluss"
"""The name of the view in Airflow's rights; an administrator grants it to roles."""


async def user_of(request: Request) -> Any | None:
    """Return Airflow's user, by its session cookie or a bearer token; None if there is none."""
    from airflow.api_fastapi.core_api import security
    from fastapi import HTTPException

    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        # Airflow's middleware has checked, and perhaps renewed, the session of a browser.
        trusted = getattr(security, "USER_INJECTED_BY_TRUSTED_MIDDLEWARE", None)
        found = getattr(request.state, "user", None)
        via = getattr(request.state, "user_authenticated_via", None)
        if found is not None and trusted is not None and via is trusted:
            return found
        token = request.cookies.get(COOKIE, "")
    if not token.strip():
        return None
    try:
        return await security.resolve_user_from_token(token.strip())
    except HTTPException:
        return None


async def may_look(user: Any, connection_id: str | None = None) -> bool:
    """Return whether a user may see the console, or that of one connection."""
    manager = get_auth_manager()
    if not manager.is_authorized_custom_view(method="GET", resource_name=RESOURCE, user=user):
        return False
    if connection_id is None or not conf.getboolean("core", "multi_team", fallback=False):
        return True
    # With teams, only those of the connection's own team see it.
    return await _of_connection("GET", user, connection_id)


async def may_act(user: Any, connection_id: str) -> bool:
    """Return whether a user may change something: who may edit the connection, if it is allowed."""
    if not conf.getboolean("fluss", "console_actions", fallback=False):
        return False
    return await _of_connection("PUT", user, connection_id)


async def _of_connection(method: Any, user: Any, connection_id: str) -> bool:
    from airflow.models import Connection

    values: dict[str, Any] = {"conn_id": connection_id}
    team_of = getattr(Connection, "get_team_name", None)
    if team_of is not None:
        team = await asyncio.to_thread(team_of, connection_id)
        if team is not None:
            values["team_name"] = team
    details = ConnectionDetails(**values)
    manager = get_auth_manager()
    return bool(manager.is_authorized_connection(method=method, details=details, user=user))
