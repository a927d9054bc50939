"""The plugin by which Airflow shows the console: an application, an entry in the navigation, tabs.

Every component of Airflow loads plugins, so nothing heavy is imported here. The console is made in
the API server when the first request comes.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin

from fluss_orchestrate.airflow.links import CONSOLE_PREFIX
from fluss_orchestrate.airflow.version_compat import CAPABILITIES, conf

NAME = "Fluss"


class LazyConsole:
    """The application; what it needs is imported by the first request."""

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if self._app is None:
            from fluss_orchestrate.airflow.console.app import AirflowConsoles

            self._app = AirflowConsoles()
        await self._app(scope, receive, send)


def _address() -> str:
    server = str(conf.get("api", "base_url", fallback="") or "")
    return f"{urlsplit(server).path.rstrip('/')}{CONSOLE_PREFIX}/"


def _views() -> list[dict[str, Any]]:
    """Return the entry in the navigation, and the tabs of DAGs and tasks.

    Airflow finds a view by its route alone, so each needs one of its own.
    """
    if not CAPABILITIES.plugin_pages:
        return []
    views = [{"destination": "nav", "category": "browse", "url_route": "fluss", "href": _address()}]
    if conf.getboolean("fluss", "console_tabs", fallback=True):
        views += [
            {"destination": place, "url_route": f"fluss-{place}", "href": f"{_address()}?{query}"}
            for place, query in (
                ("dag", "dag={DAG_ID}"),
                ("task", "dag={DAG_ID}&task={TASK_ID}"),
            )
        ]
    return [{"name": NAME, **view} for view in views]


class FlussPlugin(AirflowPlugin):
    """The console of each Fluss connection: under Browse, and the checkpoints of a DAG or task."""

    name = "fluss"
    fastapi_apps = (
        [{"app": LazyConsole(), "url_prefix": CONSOLE_PREFIX, "name": "Apache Fluss console"}]
        if CAPABILITIES.plugin_pages
        else []
    )
    external_views = _views()
