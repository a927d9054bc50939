"""Who may see the console, who may act, and the tokens of its forms.

An access is an ASGI application around the console: it refuses a request, or puts a `Viewer` into
it. The console itself answers no request without a viewer. `LocalAccess` is for `fluss-orchestrate
ui`; Airflow's plugin has its own.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fluss_client.errors import ConfigError

VIEWER = "fluss_orchestrate.viewer"
"""The key of the viewer in the scope of a request."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "fluss_console"
FORM_AGE_MAX_S = 7_200
SESSION_AGE_MAX_S = 12 * 3_600
TOKEN_LENGTH_MIN = 16


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who sends a request."""

    name: str
    """As it is recorded with an action."""
    may_act: bool = False


def viewer_of(scope: Scope) -> Viewer | None:
    """Return the viewer that an access has put into a request; None if there was none."""
    found = scope.get(VIEWER)
    return found if isinstance(found, Viewer) else None


class FormTokens:
    """Tokens that show that a form came from this console, for this viewer and this action.

    Args:
        key: The secret key; processes that serve the same viewers share it.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    def issue(self, viewer: Viewer, action: str) -> str:
        """Return a token for a form."""
        until = int(time.time()) + FORM_AGE_MAX_S
        return f"{until}.{self._mac(viewer, action, until)}"

    def accepts(self, token: str, viewer: Viewer, action: str) -> bool:
        """Return whether a token was issued for this viewer and action, and is not too old."""
        until, _, mac = token.partition(".")
        if not until.isascii() or not until.isdigit() or int(until) < time.time():
            return False
        return hmac.compare_digest(mac.encode(), self._mac(viewer, action, int(until)).encode())

    def _mac(self, viewer: Viewer, action: str, until: int) -> str:
        text = f"{until}\n{action}\n{viewer.name}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def is_same_origin(request: Request, origins: tuple[str, ...] = ()) -> bool:
    """Return whether a browser says that a request comes from a page of this very console.

    Args:
        request: The request.
        origins: Further origins of the console, where a proxy changes the host.
    """
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = request.headers.get("origin", "")
    if origin in origins:
        return True
    parts = urlsplit(origin)
    # The scheme is left to the browser: a proxy that ends TLS hides it from this process.
    return parts.scheme in ("http", "https") and parts.netloc == request.headers.get("host", "")


class LocalAccess:
    """Access to a console that runs by itself.

    On loopback, whoever can reach it may see it; requests that name another host are refused, so
    that a foreign web page cannot reach it through a name that it controls. On any other address a
    token is needed: as `Authorization: Bearer`, or typed once into a form.

    Args:
        app: The console.
        host: The address on which the server listens.
        token: The token; None only on loopback.
        may_act: Whether viewers may act.
        user: Who is recorded with actions.
    """

    def __init__(
        self, app: ASGIApp, host: str, token: str | None, *, may_act: bool, user: str
    ) -> None:
        if token is None and host not in LOOPBACK:
            raise ConfigError(
                f"on {host} others can reach the console, so it needs a token: set "
                "FLUSS_CONSOLE_TOKEN or give --token-file, or listen on 127.0.0.1"
            )
        if token is not None and len(token) < TOKEN_LENGTH_MIN:
            raise ConfigError(f"a token of the console has at least {TOKEN_LENGTH_MIN} characters")
        self._app = app
        self._token = token
        self._key = secrets.token_bytes(32)
        self._viewer = Viewer(user, may_act)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        refusal = await self._refusal(request)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._app({**scope, VIEWER: self._viewer}, receive, send)

    async def _refusal(self, request: Request) -> Response | None:
        if self._token is None:
            host = urlsplit(f"//{request.headers.get('host', '')}").hostname
            if host in LOOPBACK:
                return None
            return PlainTextResponse(
                "this console answers on loopback only", HTTPStatus.MISDIRECTED_REQUEST
            )
        if request.url.path.startswith("/assets/"):
            return None
        if self._is_known(request.headers, request.cookies.get(COOKIE, "")):
            return None
        if request.url.path == "/login":
            return await self._login(request)
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        return PlainTextResponse(
            "send the token as Authorization: Bearer",
            HTTPStatus.UNAUTHORIZED,
            {"WWW-Authenticate": "Bearer"},
        )

    def _is_known(self, headers: Headers, cookie: str) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return True
        until, _, mac = cookie.partition(".")
        if not until.isascii() or not until.isdigit() or int(until) < time.time():
            return False
        return hmac.compare_digest(mac.encode(), self._session(int(until)).encode())

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self._token or "").encode())

    def _session(self, until: int) -> str:
        # The token itself never goes into a cookie.
        return hmac.new(self._key, str(until).encode(), hashlib.sha256).hexdigest()

    async def _login(self, request: Request) -> Response:
        from fluss_orchestrate.console.rendering import form_fields, login_page

        if request.method != "POST":
            return login_page(request)
        given = await form_fields(request)
        if not is_same_origin(request) or not self._is_token(given.get("token", "")):
            return login_page(request, "That is not the token.")
        until = int(time.time()) + SESSION_AGE_MAX_S
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(
            COOKIE,
            f"{until}.{self._session(until)}",
            max_age=SESSION_AGE_MAX_S,
            httponly=True,
            samesite="strict",
            secure=request.headers.get("x-forwarded-proto", request.url.scheme) == "https",
        )
        return answer
