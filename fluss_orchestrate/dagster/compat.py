"""What is the same under every release of Dagster from 1.12 on, and our entry in its registry.

Nothing else in this package asks for a version of Dagster.
"""

from __future__ import annotations

import re
from typing import Any

from dagster_shared.libraries import DagsterLibraryRegistry

from fluss_client import __version__

LIBRARY = "fluss-orchestrate"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")

DagsterLibraryRegistry.register(LIBRARY, __version__, is_dagster_package=False)


def valid_name(text: str) -> str:
    """Return a name that Dagster takes for groups, sensors, jobs and pools of any release.

    Pools of releases before 1.12.15 have neither `.` nor `/` in their names.
    """
    return _NOT_IN_NAMES.sub("_", text)


def state_is_local(defs_state: Any) -> bool:
    """Whether the state of a component is a file of its project, as it is by default."""
    return str(defs_state.management_type.value) == "LOCAL_FILESYSTEM"


def pool_of(table: str) -> str:
    """Return the pool of the increments of a table: `fluss_database_table`."""
    return valid_name(f"fluss_{table}")
