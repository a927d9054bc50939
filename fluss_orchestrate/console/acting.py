"""Pages that change something: each says what it does to data, and asks for a reason.

Nothing is changed by opening a page. A change is a form that was made here (its token), sent from
here (its origin), by somebody who may act, with a reason, which is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from fluss_client.errors import FlussError
from fluss_orchestrate.console import formats, rendering
from fluss_orchestrate.console.access import FormTokens, Viewer, is_same_origin, viewer_of
from fluss_orchestrate.console.service import Console
from fluss_orchestrate.core.overview.actions import REASON_LENGTH_MAX, Order
from fluss_orchestrate.core.overview.figures import CheckpointFigures, TableFigures
from fluss_orchestrate.core.provisioning.window import PartitionWindow, WindowPlan
from fluss_orchestrate.core.times import as_time_ms

TITLES = {
    "reset": "Reset a checkpoint",
    "abandon": "Abandon a pending plan",
    "tier": "Tier now",
    "partitions": "Create and drop partitions",
}
UNITS = ("hour", "day", "month", "quarter", "year")
NUMBER_LENGTH_MAX = 5


@dataclass
class Asked:
    """One action that somebody asks for: what it would do, and how to do it."""

    action: str
    name: str
    effects: list[str] = field(default_factory=list)
    """What it does to data."""
    problem: str = ""
    work: Callable[[Order], str] | None = None
    """None while the fields are not complete: the page then asks for them."""
    shown: dict[str, Any] = field(default_factory=dict)
    """What the template of the action shows."""
    signed: str = ""
    """What the confirmation was about. Another one has to be confirmed again."""


class ActionPages:
    """The pages of actions.

    Args:
        console: What they act on.
        tokens: The tokens of forms.
        origins: Further origins of the console.
    """

    def __init__(self, console: Console, tokens: FormTokens, origins: tuple[str, ...]) -> None:
        self._console = console
        self._tokens = tokens
        self._origins = origins

    def show(self, request: Request) -> Response:
        """Say what an action does, and ask for confirmation."""
        viewer = self._actor(request)
        action = request.path_params["action"]
        if isinstance(viewer, Response):
            return viewer
        if action not in TITLES:
            return self._refused(request, HTTPStatus.NOT_FOUND, "there is no such action")
        asked = self._asked(action, dict(request.query_params))
        return self._page(request, viewer, asked, dict(request.query_params))

    async def act(self, request: Request) -> Response:
        """Do an action that was confirmed."""
        viewer = self._actor(request)
        action = request.path_params["action"]
        if isinstance(viewer, Response):
            return viewer
        if action not in TITLES:
            return self._refused(request, HTTPStatus.NOT_FOUND, "there is no such action")
        if not is_same_origin(request, self._origins):
            text = "this form was not sent from a page of this console"
            return self._refused(request, HTTPStatus.FORBIDDEN, text)
        fields = await rendering.form_fields(request)
        subject = f"{action}\n{fields.get('name', '')}"
        if not self._tokens.accepts(fields.get("token", ""), viewer, subject):
            text = "this form is too old, or was made for something else; open the page again"
            return self._refused(request, HTTPStatus.FORBIDDEN, text)
        return await run_in_threadpool(self._act, request, viewer, action, fields)

    def _act(
        self, request: Request, viewer: Viewer, action: str, fields: dict[str, str]
    ) -> Response:
        asked = self._asked(action, fields)
        reason = fields.get("reason", "").strip()
        work = asked.work
        if asked.problem or work is None:
            return self._page(request, viewer, asked, fields, HTTPStatus.BAD_REQUEST)
        if fields.get("signed", "") != asked.signed:
            asked.problem = "It changed since the page was shown: look again, then confirm."
            return self._page(request, viewer, asked, fields, HTTPStatus.CONFLICT)
        if not reason or len(reason) > REASON_LENGTH_MAX:
            asked.problem = f"A reason of at most {REASON_LENGTH_MAX} characters is needed."
            return self._page(request, viewer, asked, fields, HTTPStatus.BAD_REQUEST)
        order = Order(viewer.name, reason)
        try:
            result = self._console.acted(lambda: work(order))
        except FlussError as error:
            asked.problem = " ".join(str(error).split())
            return self._page(request, viewer, asked, fields, HTTPStatus.CONFLICT)
        values = {"asked": asked, "result": result, "reason": reason}
        return self._framed(request, "acted.html", TITLES[action], values)

    def _actor(self, request: Request) -> Viewer | Response:
        viewer = viewer_of(request.scope)
        if viewer is None or not viewer.may_act or not self._console.settings.actions:
            return self._refused(
                request, HTTPStatus.FORBIDDEN, "you may look at this console, and not act"
            )
        return viewer

    def _refused(self, request: Request, status: HTTPStatus, text: str) -> Response:
        return rendering.page(request, "failed.html", {"problem": text}, status)

    def _page(
        self,
        request: Request,
        viewer: Viewer,
        asked: Asked,
        fields: dict[str, str],
        status: int = HTTPStatus.OK,
    ) -> Response:
        values = {
            "asked": asked,
            "fields": fields,
            "token": self._tokens.issue(viewer, f"{asked.action}\n{asked.name}"),
            "reason_max": REASON_LENGTH_MAX,
            "units": UNITS,
        }
        return self._framed(request, "act.html", TITLES[asked.action], values, status)

    def _framed(
        self,
        request: Request,
        template: str,
        title: str,
        values: dict[str, Any],
        status: int = HTTPStatus.OK,
    ) -> Response:
        from fluss_orchestrate.console.app import frame

        around = frame(self._console, request, self._console.look(), title)
        return rendering.page(request, template, {**around, **values}, status)

    def _asked(self, action: str, fields: dict[str, str]) -> Asked:
        asked = Asked(action, fields.get("name", ""))
        prepare = {
            "reset": self._reset,
            "abandon": self._abandon,
            "tier": self._tier,
            "partitions": self._partitions,
        }[action]
        try:
            prepare(asked, fields)
        except FlussError as error:
            asked.problem, asked.work = " ".join(str(error).split()), None
        return asked

    def _checkpoint(self, name: str) -> CheckpointFigures | None:
        return self._console.checkpoint(name)

    def _table(self, name: str) -> TableFigures | None:
        gathered = self._console.look().gathered
        found = () if gathered is None else gathered.overview.tables
        return next((one for one in found if one.table == name), None)

    def _reset(self, asked: Asked, fields: dict[str, str]) -> None:
        one = self._checkpoint(asked.name)
        if one is None:
            asked.problem = f"there is no checkpoint '{asked.name}'"
            return
        to = fields.get("to", "") or "current"
        at = fields.get("at", "").strip()
        given = at if to == "time" else to
        asked.shown = {"to": to, "at": at, "choices": _choices(one)}
        asked.signed = one.pending.plan_id if one.pending is not None else ""
        asked.effects = self._reset_effects(one)
        if to not in {value for value, *_ in asked.shown["choices"]}:
            asked.problem = f"'{to}' is no place to reset to"
            return
        if to == "time" and as_time_ms(at) is None:
            asked.problem = "Give a time with its zone, such as 2026-11-16T08:00:00Z."
            return
        asked.work = lambda order: self._console.actions.reset(
            asked.name, given, order, abandon_pending=one.pending is not None
        )

    def _reset_effects(self, one: CheckpointFigures) -> list[str]:
        effects = [
            "The position of the checkpoint moves, and a new generation begins: rows that were "
            "written before may be written again. A sink that appends then holds them twice, "
            "unless they are taken out first. A mirror takes a reset to start, and then "
            "replaces all its rows by the state of the table."
        ]
        if one.pending is not None:
            effects.insert(
                0,
                f"Plan {one.pending.plan_id} of run {one.pending.run_key} is abandoned first. If "
                "that run is still alive, its commit will fail.",
            )
        return effects

    def _abandon(self, asked: Asked, fields: dict[str, str]) -> None:
        one = self._checkpoint(asked.name)
        if one is None or one.pending is None:
            asked.problem = f"checkpoint '{asked.name}' has no pending plan"
            return
        plan = one.pending
        asked.signed = plan.plan_id
        asked.effects = [
            f"Plan {plan.plan_id} of run {plan.run_key} ({formats.number(plan.offsets)} offsets in "
            f"{formats.number(plan.ranges)} ranges) is given up. The position stays.",
            "Its rows are planned again by the next run. Rows that the plan has already written "
            "into a sink that appends are then there twice: take them out first.",
            "If the run is still alive, its commit will fail. To let another run finish the plan "
            "instead, start that run with on_pending='adopt'.",
        ]
        asked.work = lambda order: self._console.actions.abandon(asked.name, plan.plan_id, order)

    def _tier(self, asked: Asked, fields: dict[str, str]) -> None:
        table = self._table(asked.name)
        if table is None or table.lake is None:
            asked.problem = _not_seen(f"table '{asked.name}' with a lake")
            return
        asked.effects = [
            f"{formats.number(table.lake.behind)} offsets that the lake lacks are written into its "
            "Iceberg table by this process, and committed in one snapshot.",
            "Rows in Fluss do not change. Fluss may then delete log that the lake holds, as its "
            "retention says.",
            "Do this only where no tiering service works on the table. If one commits meanwhile, "
            "this round begins again.",
        ]
        asked.work = lambda order: self._console.actions.tier(asked.name, order)

    def _partitions(self, asked: Asked, fields: dict[str, str]) -> None:
        table = self._table(asked.name)
        if table is None or table.partitions is None:
            asked.problem = _not_seen(f"partitioned table '{asked.name}'")
            return
        asked.shown = {
            "unit": fields.get("unit", "day"),
            "ahead": fields.get("ahead", "2"),
            "retain": fields.get("retain", ""),
            "key": fields.get("key", ""),
            "time_zone": fields.get("time_zone", "UTC") or "UTC",
            "plan": None,
        }
        asked.effects = [
            "Partitions from now on are created ahead of time. Partitions that are older than what "
            "is retained are dropped with all their rows.",
            "A partition that a checkpoint has not read to its end, or that the lake does not hold "
            "whole, stays.",
        ]
        if "unit" not in fields:
            return
        numbers = [asked.shown["ahead"], asked.shown["retain"] or "0"]
        if not all(n.isascii() and n.isdigit() and len(n) <= NUMBER_LENGTH_MAX for n in numbers):
            asked.problem = "How many partitions to create and to retain are whole numbers."
            return
        planned = self._console.actions.plan_partitions(
            PartitionWindow(
                asked.name,
                asked.shown["unit"],
                int(asked.shown["ahead"]),
                int(asked.shown["retain"]) if asked.shown["retain"] else None,
                asked.shown["key"] or None,
                time_zone=asked.shown["time_zone"],
            )
        )
        asked.shown["plan"] = planned
        asked.signed = _signed(planned)
        asked.work = lambda order: self._console.actions.apply_partitions(planned, order)


def _choices(one: CheckpointFigures) -> list[tuple[str, str, str]]:
    """Return the places to reset to, each with its name and what it does to data."""
    unread = "The" if one.unread is None else f"The {formats.number(one.unread)}"
    return [
        ("latest", "Latest", f"{unread} unread offsets are skipped, and never reach the sink."),
        ("earliest", "Earliest", "Everything that the log still holds is read again."),
        (
            "current",
            "Current",
            "The position stays; only a new generation begins, for example for another sink.",
        ),
        (
            "start",
            "Start",
            "The next run begins as a first run does. A mirror takes only this, and is rebuilt.",
        ),
        (
            "time",
            "A time",
            "Rows committed from that time on are read again, or those before it are skipped.",
        ),
    ]


def _not_seen(what: str) -> str:
    return f"the last pass over the cluster found no {what}; a new one is there after the next pass"


def _signed(planned: WindowPlan) -> str:
    created = sorted(",".join(spec.values()) for spec in planned.create)
    dropped = sorted(p.partition_name for p in planned.drop)
    return f"create {' '.join(created)} drop {' '.join(dropped)}"
