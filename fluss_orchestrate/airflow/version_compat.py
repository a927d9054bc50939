"""What the supported releases of Airflow have, and what is used where one of them lacks it.

The provider runs on Airflow 3.0 and later. All imports whose place changed between 3.0 and 3.3 are
made here, and `CAPABILITIES` says which parts of the newest release this installation has. Each
capability has a named fallback that keeps the same promise:

- `task_state` (3.3): the frozen target of a sensor and the results of `@task.fluss_scan` are kept
  in Airflow's task state. Fallback: a table of the cluster itself,
  `core.checkpoints.SchedulerState`.
- `asset_state` (3.3): the cursor of a watcher is kept with the watched asset. Fallback: the same
  table.
- `acknowledged_streams` (3.3): the cursor of a watcher moves when Airflow has stored the event.
  Fallback: it moves some seconds after the event was handed to Airflow, so that an event may come
  twice.
- `asset_partitions` (3.3): a task says which partitions of an asset it has changed. There is no
  fallback: `asset_partitions=True` fails the task as it begins.
- `async_masking` (3.3): secrets are masked without blocking the event loop. Fallback: on a thread.
- `plugin_pages` (3.1): plugins add pages to the navigation, and the session is in a cookie.
  Fallback: no console in Airflow; `fluss-orchestrate ui` shows the same.
- `declared_form` (3.2): the connection form is made of `conn-fields` in the provider's description.
  Fallback: the hook makes it. Its own fields need the package wtforms there, which Airflow's FAB
  provider brings; without it the extras are written as JSON.
- `sqlalchemy_2` (3.1): SQLAlchemy 2, which the extras `lake` and `sql` need. There is no fallback:
  `SqlTarget`, and catalogs of Iceberg that are kept in SQL, are refused.
- `lineage_extra` (3.2): counts of rows are added to the lineage of hooks. Fallback: lineage
  without counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow import __version__ as airflow_version

if TYPE_CHECKING:
    from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

try:
    from airflow.sdk import BaseHook
except ImportError:  # 3.0
    from airflow.hooks.base import BaseHook  # type: ignore[no-redef,attr-defined,unused-ignore]

try:
    from airflow.sdk import conf
except ImportError:  # 3.0, 3.1
    from airflow.configuration import conf  # type: ignore[assignment,no-redef,unused-ignore]

try:
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowOptionalProviderFeatureException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTerminated,
    )
except ImportError:  # 3.0, 3.1
    from airflow.exceptions import (  # type: ignore[assignment,no-redef,attr-defined,unused-ignore]
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowOptionalProviderFeatureException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTerminated,
    )


def __getattr__(name: str) -> Any:
    """Import the parts of triggers when a trigger is used: files of DAGs are parsed all day."""
    if name not in ("AdvanceItem", "SharedStreamProducer"):
        raise AttributeError(f"module {__name__} has no attribute {name}")
    try:
        from airflow.triggers import shared_stream
    except ImportError:  # before 3.3
        return Any if name == "AdvanceItem" else object
    return getattr(shared_stream, name)


@dataclass(frozen=True)
class Capabilities:
    """What this installation of Airflow has. Each field is described in the module's docstring."""

    task_state: bool
    asset_state: bool
    acknowledged_streams: bool
    asset_partitions: bool
    async_masking: bool
    lineage_extra: bool
    plugin_pages: bool
    sqlalchemy_2: bool
    declared_form: bool


def version_of(text: str) -> tuple[int, int]:
    """Return the major and minor number of a version."""
    major, minor, *_ = text.split(".")
    return int(major), int(minor)


AIRFLOW_VERSION = version_of(airflow_version)
AIRFLOW_V_3_1_PLUS = AIRFLOW_VERSION >= (3, 1)
AIRFLOW_V_3_2_PLUS = AIRFLOW_VERSION >= (3, 2)
AIRFLOW_V_3_3_PLUS = AIRFLOW_VERSION >= (3, 3)
CAPABILITIES = Capabilities(
    task_state=AIRFLOW_V_3_3_PLUS,
    asset_state=AIRFLOW_V_3_3_PLUS,
    acknowledged_streams=AIRFLOW_V_3_3_PLUS,
    asset_partitions=AIRFLOW_V_3_3_PLUS,
    async_masking=AIRFLOW_V_3_3_PLUS,
    lineage_extra=AIRFLOW_V_3_2_PLUS,
    plugin_pages=AIRFLOW_V_3_1_PLUS,
    sqlalchemy_2=AIRFLOW_V_3_1_PLUS,
    declared_form=AIRFLOW_V_3_2_PLUS,
)


def serializers() -> tuple[Any, Any]:
    """Return Airflow's `serialize` and `deserialize` of plain and rich values."""
    try:
        from airflow.sdk.serde import deserialize, serialize
    except ImportError:  # 3.0, 3.1
        from airflow.serialization.serde import (  # type: ignore[no-redef,import-not-found,unused-ignore]
            deserialize,
            serialize,
        )
    return serialize, deserialize


def get_hook_lineage_collector() -> Any:
    """Return Airflow's collector of the lineage of hooks.

    It is imported here, because before 3.2 that takes as long as importing all of Airflow's core.
    """
    try:
        from airflow.sdk.lineage import get_hook_lineage_collector as collector
    except ImportError:  # 3.0, 3.1
        from airflow.lineage.hook import (  # type: ignore[no-redef,import-not-found,unused-ignore]
            get_hook_lineage_collector as collector,
        )
    return collector()


def core_timetable(timetable: Any) -> Any:
    """Return the timetable of Airflow's core for that of a DAG; they are one class before 3.2."""
    try:
        from airflow.serialization.encoders import coerce_to_core_timetable
    except ImportError:  # 3.0, 3.1
        return timetable
    return coerce_to_core_timetable(timetable)


__all__ = [
    "CAPABILITIES",
    "AdvanceItem",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowOptionalProviderFeatureException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTerminated",
    "BaseHook",
    "Capabilities",
    "SharedStreamProducer",
    "conf",
    "core_timetable",
    "get_hook_lineage_collector",
    "serializers",
]
