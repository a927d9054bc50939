"""The web application: its routes, and the pages and JSON that show one cluster."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fluss_client.errors import ClientError, ConfigError, FlussError
from fluss_orchestrate.console import prometheus, rendering, views
from fluss_orchestrate.console.access import FormTokens, viewer_of
from fluss_orchestrate.console.acting import ActionPages
from fluss_orchestrate.console.service import Console
from fluss_orchestrate.core.checkpoints.events import IntervalName, now_ms
from fluss_orchestrate.core.overview.figures import (
    CheckpointFigures,
    IntervalScanFigures,
    TableFigures,
)
from fluss_orchestrate.core.overview.gathering import checkpoint_figures
from fluss_orchestrate.core.overview.intervals import interval_scan_figures, missing_times
from fluss_orchestrate.core.overview.monitor import Look
from fluss_orchestrate.core.overview.samples import COARSE, FINE

FILTER_LENGTH_MAX = 500


def create_app(
    console: Console,
    tokens: FormTokens | None = None,
    *,
    framed_by: str = "'none'",
    origins: tuple[str, ...] = (),
) -> ASGIApp:
    """Return the web application of a console.

    It answers only requests that carry a viewer: put an access around it (`access.LocalAccess`).

    Args:
        console: What it shows.
        tokens: The tokens of its forms; processes that serve the same viewers share their key.
        framed_by: Who may show it in a frame: `'none'`, or `'self'`.
        origins: Further origins of the console, where a proxy changes the host.
    """
    pages = Pages(console)
    acting = ActionPages(console, tokens or FormTokens(), origins)
    shown = {
        "/": pages.overview,
        "/tables": pages.tables,
        "/table": pages.table,
        "/checkpoints": pages.checkpoints,
        "/checkpoint": pages.checkpoint,
        "/lakes": pages.lakes,
        "/lake": pages.lake,
        "/loads": pages.loads,
        "/actions": pages.actions,
        "/metrics": pages.metrics,
    }
    routes = [Route(path, answer, methods=["GET"]) for path, answer in shown.items()]
    routes += [
        Route(f"/api{path}", answer, methods=["GET"])
        for path, answer in {**shown, "/overview": pages.overview}.items()
        if path not in ("/", "/metrics")
    ]
    routes.append(Route("/act/{action}", acting.show, methods=["GET"]))
    routes.append(Route("/act/{action}", acting.act, methods=["POST"]))
    routes.append(Route("/assets/{name}", rendering.asset_response, methods=["GET"]))
    app = Starlette(
        routes=routes,
        exception_handlers={
            FlussError: _failed,
            ClientError: _failed,
            HTTPStatus.NOT_FOUND: _not_found,
        },
    )
    return rendering.SecurityHeaders(_ViewersOnly(app), framed_by)


class _ViewersOnly:
    """Refuses requests without a viewer, so that a console without an access shows nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and viewer_of(scope) is None:
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            if not path.startswith(("/assets/", "/login")):
                refusal = PlainTextResponse("not authenticated", HTTPStatus.UNAUTHORIZED)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Pages:
    """The pages of one console. Each answers as a page, and below `/api` as JSON."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def overview(self, request: Request) -> Response:
        """Everything at one moment, what needs attention first."""
        look = self._console.look()
        if _is_api(request):
            return _json(look, None if look.gathered is None else look.gathered.overview.to_json())
        if look.gathered is None:
            return self._page(request, look, "overview.html", "Overview", {"sums": None})
        overview = look.gathered.overview
        checkpoints = views.by_urgency([c for c in overview.checkpoints if not c.retired])
        tables = views.busiest(overview.tables)
        return self._page(
            request,
            look,
            "overview.html",
            "Overview",
            {
                "sums": views.sums(overview),
                "notices": views.notices(overview),
                "notices_max": views.ATTENTION_MAX,
                "checkpoints": checkpoints[: views.ROWS_ON_OVERVIEW_MAX],
                "checkpoints_total": len(checkpoints),
                "scans": overview.intervals[: views.ROWS_ON_OVERVIEW_MAX],
                "scans_total": len(overview.intervals),
                "tables": tables[: views.ROWS_ON_OVERVIEW_MAX],
                "tables_total": len(tables),
            },
        )

    def tables(self, request: Request) -> Response:
        """All tables."""
        return self._list(request, "tables")

    def checkpoints(self, request: Request) -> Response:
        """All checkpoints."""
        return self._list(request, "checkpoints")

    def lakes(self, request: Request) -> Response:
        """All tables with a lake."""
        return self._list(request, "lakes")

    def _list(self, request: Request, kind: str) -> Response:
        look = self._console.look()
        text, run = (request.query_params.get(key, "")[:FILTER_LENGTH_MAX] for key in ("q", "run"))
        found: list[Any] = []
        scans: list[Any] = []
        if look.gathered is not None:
            overview = look.gathered.overview
            if kind == "checkpoints":
                found = views.by_urgency(views.matching(overview.checkpoints, text, run))
                scans = views.matching(overview.intervals, text, run)
            else:
                tables = [t for t in overview.tables if kind == "tables" or t.lake is not None]
                found = views.matching(tables, text)
        number = _number(request.query_params.get("page", "1"))
        pages = max(1, -(-len(found) // views.ROWS_PER_PAGE))
        number = min(number, pages)
        start = (number - 1) * views.ROWS_PER_PAGE
        shown = found[start : start + views.ROWS_PER_PAGE]
        if _is_api(request):
            rows = [one.to_json() if hasattr(one, "to_json") else _plain(one) for one in shown]
            value = {kind: rows, "total": len(found), "page": number, "pages": pages}
            if kind == "checkpoints":
                value["intervals"] = [_plain(scan) for scan in scans]
            return _json(look, value)
        values = {
            "rows": shown,
            "scans": scans,
            "total": len(found),
            "q": text,
            "run": run,
            "page": number,
            "pages": pages,
            "kind": kind,
        }
        return self._page(request, look, f"{kind}.html", kind.capitalize(), values)

    def table(self, request: Request) -> Response:
        """One table: its columns, buckets, checkpoints and history."""
        look, name = self._console.look(), request.query_params.get("name", "")
        overview = None if look.gathered is None else look.gathered.overview
        one = next((t for t in overview.tables if t.table == name), None) if overview else None
        if one is None or overview is None or look.gathered is None:
            return self._missing(request, look, "table", name)
        seen = look.gathered.tables.get(name)
        places = [] if seen is None else views.table_places(seen)
        used = [c for c in overview.checkpoints if c.table == name]
        columns = [] if seen is None else _columns(seen.view.info)
        if _is_api(request):
            value = {
                "table": _plain(one),
                "columns": columns,
                "places": [place.to_json() for place in places],
                "checkpoints": [_plain(c) for c in used],
            }
            return _json(look, value)
        shown = places if "all" in request.query_params else places[: views.BUCKETS_SHOWN_MAX]
        values = {
            "table": one,
            "columns": columns,
            "partition_keys": [] if seen is None else list(seen.view.info.partition_keys),
            "places": shown,
            "places_total": len(places),
            "checkpoints": views.by_urgency(used),
            "charts": self._table_charts(request, name),
        }
        return self._page(request, look, "table.html", name, values)

    def checkpoint(self, request: Request) -> Response:
        """One checkpoint: its history, its pending plan, its position in every bucket."""
        look, name = self._console.look(), request.query_params.get("name", "")
        overview = None if look.gathered is None else look.gathered.overview
        one = next((c for c in overview.checkpoints if c.name == name), None) if overview else None
        events = self._console.events(name)
        if one is None and not events:
            return self._scan(request, look, name)
        tables = {} if look.gathered is None else look.gathered.tables
        if one is None:
            # It is newer than the last pass, or an interval that is finished: it has a history.
            one = checkpoint_figures(events[0], tables)
        head = None if look.gathered is None else look.gathered.heads.get(name)
        seen = tables.get(one.table)
        places = [] if head is None or seen is None else views.checkpoint_places(head, seen)
        rows = [views.event_row(event) for event in events]
        if _is_api(request):
            value = {
                "checkpoint": _plain(one),
                "events": rows,
                "places": [place.to_json() for place in places],
            }
            return _json(look, value)
        binding = None if not events else events[0].state.binding
        shown = places if "all" in request.query_params else places[: views.BUCKETS_SHOWN_MAX]
        intervals = [] if look.gathered is None else look.gathered.intervals.get(name, [])
        values = {
            "one": one,
            "interval": IntervalName.of(name),
            "intervals": intervals[: views.INTERVALS_BESIDE_MAX],
            "intervals_total": len(intervals),
            "binding": binding,
            "events": rows,
            "commits": views.commits(events),
            "places": shown,
            "places_total": len(places),
            "charts": self._checkpoint_charts(request, name),
        }
        return self._page(request, look, "checkpoint.html", name, values)

    def _scan(self, request: Request, look: Look, name: str) -> Response:
        """Show a scan that reads by intervals only: it has no checkpoint but theirs."""
        intervals = self._console.intervals(name)
        if not intervals:
            return self._missing(request, look, "checkpoint", name)
        one = interval_scan_figures(name, intervals)
        taken = self._console.taken(name, one.sink, one.table)
        seen = None if look.gathered is None else look.gathered.tables.get(one.table)
        places = [] if taken is None or seen is None else views.taken_places(taken, seen)
        gaps = missing_times(intervals)
        if _is_api(request):
            value = {
                "intervals": _plain(one),
                "each": [each.to_json() for each in intervals],
                "missing": gaps,
                "places": None if taken is None else [place.to_json() for place in places],
            }
            return _json(look, value)
        every = "all" in request.query_params
        values = {
            "one": one,
            "intervals": intervals if every else intervals[: views.ROWS_PER_PAGE],
            "intervals_total": len(intervals),
            "gaps": gaps[-views.ROWS_ON_OVERVIEW_MAX :],
            "known": taken is not None,
            "places": places if every else places[: views.BUCKETS_SHOWN_MAX],
            "places_total": len(places),
        }
        return self._page(request, look, "intervals.html", name, values)

    def lake(self, request: Request) -> Response:
        """The lake of one table: its snapshots and how far each bucket is behind."""
        look, name = self._console.look(), request.query_params.get("name", "")
        gathered = look.gathered
        tables: tuple[TableFigures, ...] = () if gathered is None else gathered.overview.tables
        one = next((t for t in tables if t.table == name and t.lake is not None), None)
        if one is None or gathered is None:
            return self._missing(request, look, "lake", name)
        lake, problem = None, ""
        try:
            lake = self._console.lake(name)
        except Exception as error:  # noqa: BLE001 - catalogs raise errors of many libraries
            # Their texts may hold the address of the catalog with a login, so only ours are shown.
            ours = isinstance(error, FlussError)
            problem = str(error) if ours else f"the catalog cannot be read: {type(error).__name__}"
        seen = gathered.tables.get(name)
        buckets = [] if seen is None or seen.lake is None else list(seen.lake.buckets)
        buckets.sort(key=lambda b: -b.lag_offsets)
        if _is_api(request):
            value = {
                "table": _plain(one),
                "lake": None if lake is None else lake.to_json(),
                "problem": problem,
            }
            return _json(look, value)
        shown = buckets if "all" in request.query_params else buckets[: views.BUCKETS_SHOWN_MAX]
        values = {
            "table": one,
            "lake": lake,
            "lake_problem": problem,
            "buckets": shown,
            "places_total": len(buckets),
            "charts": self._table_charts(request, name),
        }
        return self._page(request, look, "lake.html", name, values)

    def loads(self, request: Request) -> Response:
        """The loads that the ledger knows."""
        look, found = self._console.look(), self._console.loads()
        if _is_api(request):
            return _json(look, {"loads": [load.to_json() for load in found]})
        return self._page(request, look, "loads.html", "Loads", {"loads": found})

    def actions(self, request: Request) -> Response:
        """The record of actions."""
        look, found = self._console.look(), self._console.records()
        if _is_api(request):
            return _json(look, {"actions": [record.to_json() for record in found]})
        return self._page(request, look, "actions.html", "Actions", {"records": found})

    def metrics(self, request: Request) -> Response:
        """The figures for Prometheus."""
        look = self._console.look()
        overview = None if look.gathered is None else look.gathered.overview
        text = prometheus.exposition(overview, look.problem)
        return Response(text, headers={"content-type": prometheus.CONTENT_TYPE})

    def _table_charts(self, request: Request, name: str) -> dict[str, Any]:
        ring, kept = _ring(request), self._console.samples
        samples = [] if kept is None else kept.of_table(name, ring)
        return {
            "kept": kept is not None,
            "ring": ring,
            "offsets": views.points(samples, 0),
            "behind": views.points(samples, 1),
            "age": views.points(samples, 2),
        }

    def _checkpoint_charts(self, request: Request, name: str) -> dict[str, Any]:
        ring = _ring(request)
        kept = self._console.samples
        samples = [] if kept is None else kept.of_checkpoint(name, ring)
        return {
            "kept": kept is not None,
            "ring": ring,
            "unread": views.points(samples, 0),
            "age": views.points(samples, 1),
            "left": views.points(samples, 2),
        }

    def _missing(self, request: Request, look: Look, kind: str, name: str) -> Response:
        if look.gathered is None:
            # Nothing is known yet: it must not be said that there is no such table.
            problem = look.problem or "the first pass over the cluster is under way; load it again"
            if _is_api(request):
                return JSONResponse({"problem": problem}, HTTPStatus.SERVICE_UNAVAILABLE)
            status, values = HTTPStatus.SERVICE_UNAVAILABLE, {"problem": problem}
            return self._page(request, look, "failed.html", kind.capitalize(), values, status)
        if _is_api(request):
            return JSONResponse({"problem": f"there is no {kind} '{name}'"}, HTTPStatus.NOT_FOUND)
        values = {"kind": kind, "name": name}
        return self._page(request, look, "missing.html", f"No {kind}", values, HTTPStatus.NOT_FOUND)

    def _page(
        self,
        request: Request,
        look: Look,
        template: str,
        title: str,
        values: dict[str, Any],
        status: int = HTTPStatus.OK,
    ) -> Response:
        shown = {"sparks": {}, **frame(self._console, request, look, title), **values}
        if self._console.samples is not None:
            shown["sparks"] = self._sparks(values)
        return rendering.page(request, template, shown, status)

    def _sparks(self, values: dict[str, Any]) -> dict[tuple[str, str], Any]:
        assert self._console.samples is not None
        rows = [*values.get("checkpoints", ()), *values.get("tables", ()), *values.get("rows", ())]
        checkpoints = [one.name for one in rows if isinstance(one, CheckpointFigures)]
        tables = [one.table for one in rows if isinstance(one, TableFigures)]
        found: dict[tuple[str, str], Any] = {}
        for name, samples in self._console.samples.of_checkpoints(checkpoints).items():
            found["checkpoint", name] = views.points(samples, 0)
        for name, samples in self._console.samples.of_tables(tables).items():
            found["table", name] = views.points(samples, 0)
        return found


def frame(console: Console, request: Request, look: Look, title: str) -> dict[str, Any]:
    """Return what every page shows around its content."""
    overview = None if look.gathered is None else look.gathered.overview
    config = console.connection.config
    viewer = viewer_of(request.scope)
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return {
        "title": title,
        "path": path,
        "alias": config.resolved_alias(),
        "address": config.resolved_bootstrap(),
        "overview": overview,
        "look": look,
        "detailed": look.gathered is not None and bool(look.gathered.tables),
        "interval_s": console.settings.interval_s,
        "viewer": viewer,
        "may_act": console.settings.actions and viewer is not None and viewer.may_act,
        "now_ms": now_ms(),
        "expiry_text": views.expiry_text,
        "level_of": views.level_of,
    }


def _is_api(request: Request) -> bool:
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return path.startswith("/api/")


def _json(look: Look, value: Any) -> Response:
    overview = None if look.gathered is None else look.gathered.overview
    observed = None if overview is None else overview.observed_ms
    body = {"observed_ms": observed, "problem": look.problem, "answer": value}
    return JSONResponse(body, headers={"cache-control": "no-store"})


def _plain(figures: TableFigures | CheckpointFigures | IntervalScanFigures) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(figures)


def _columns(info: Any) -> list[dict[str, Any]]:
    keys = set(info.primary_keys or ())
    return [
        {
            "name": column.name,
            "type": str(column.type),
            "key": column.name in keys,
            "comment": column.comment or "",
        }
        for column in info.schema.columns
    ]


def _ring(request: Request) -> int:
    return COARSE if request.query_params.get("span") == "days" else FINE


def _number(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 6 else 1


async def _failed(request: Request, error: Exception) -> Response:
    """Say what went wrong; the errors of the client hold no secret."""
    status = HTTPStatus.BAD_REQUEST if isinstance(error, ConfigError) else HTTPStatus.BAD_GATEWAY
    text = " ".join(str(error).split())
    if _is_api(request):
        return JSONResponse({"problem": text}, status)
    return rendering.page(request, "failed.html", {"problem": text}, status)


async def _not_found(request: Request, error: Exception) -> Response:
    return PlainTextResponse("there is no such page", HTTPStatus.NOT_FOUND)
