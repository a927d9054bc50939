"""Templates and the headers of every response.

Templates escape every value. Styles and scripts come from the console itself, so that the content
security policy allows nothing else, not even inline.
"""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fluss_orchestrate.console import charts, formats, links

FORM_BYTES_MAX = 64 << 10
HERE = Path(__file__).parent
ASSETS = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "console.svg": "image/svg+xml",
}
FILTERS = (
    *("number", "compact", "rate", "size", "duration", "ago", "took", "counted", "until"),
    *("moment", "iso", "checkpoint"),
)
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors {ancestors}"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@cache
def environment() -> Environment:
    """Return the environment of the templates."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in FILTERS:
        made.filters[name] = getattr(formats, name)
    made.globals.update(
        spark=charts.spark,
        lines=charts.lines,
        bars=charts.bars,
        meter=charts.meter,
        page_of=links.page,
    )
    return made


@cache
def asset(name: str) -> str:
    """Return the text of a style sheet or a script of the console."""
    return (HERE / "assets" / name).read_text(encoding="utf-8")


def asset_response(request: Request) -> Response:
    """Answer a request for an asset."""
    name = request.path_params["name"]
    if name not in ASSETS:
        return Response(status_code=HTTPStatus.NOT_FOUND)
    # Short, because the address stays the same when another release is installed.
    headers = {"cache-control": "public, max-age=300"}
    return Response(asset(name), media_type=ASSETS[name], headers=headers)


def page(
    request: Request, template: str, values: dict[str, Any], status: int = HTTPStatus.OK
) -> Response:
    """Return a page made of a template."""
    base = request.scope.get("root_path", "").rstrip("/")
    text = environment().get_template(template).render(base=base, **values)
    return HTMLResponse(text, int(status), {"cache-control": "no-store"})


def login_page(request: Request, problem: str = "") -> Response:
    """Return the page that asks for the token."""
    status = HTTPStatus.FORBIDDEN if problem else HTTPStatus.OK
    return page(request, "login.html", {"problem": problem}, status)


async def form_fields(request: Request) -> dict[str, str]:
    """Return the fields of a form that was sent; empty for anything that is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > FORM_BYTES_MAX:
            return {}
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


class SecurityHeaders:
    """Adds the headers of the console to every response.

    Args:
        app: The console.
        framed_by: Who may show the console in a frame: `'none'`, or `'self'`.
    """

    def __init__(self, app: ASGIApp, framed_by: str = "'none'") -> None:
        self._app = app
        headers = {**HEADERS, "content-security-policy": POLICY.format(ancestors=framed_by)}
        self._headers = [(key.encode(), value.encode()) for key, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        await self._app(scope, receive, with_headers)
