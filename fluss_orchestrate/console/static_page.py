"""One page that needs no server: to attach to a ticket, or to mail."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from markupsafe import Markup

from fluss_orchestrate.console import rendering, views
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.overview.figures import Overview


def static_page(overview: Overview) -> str:
    """Return the overview as one HTML document without scripts, links and requests.

    Args:
        overview: What it shows.
    """
    style = rendering.asset("console.css")
    digest = hashlib.sha256(style.encode()).digest()
    values: dict[str, Any] = {
        "base": None,
        "overview": overview,
        "style": Markup(style),  # noqa: S704 (a file of this package)
        "style_hash": base64.b64encode(digest).decode(),
        "notices": views.notices(overview),
        "checkpoints": views.by_urgency(overview.checkpoints),
        "sparks": {},
        "now_ms": now_ms(),
        "expiry_text": views.expiry_text,
        "level_of": views.level_of,
    }
    return rendering.environment().get_template("status.html").render(values)
