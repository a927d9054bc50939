"""What is the same under every release of Dagster from 1.12 on, and our entry in its registry.

Nothing else in this package asks for a version of Dagster.
"""

from __future__ import annotations

import re

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


def pool_of(table: str) -> str:
    """Return the pool of the increments of a table: `fluss_database_table`."""
    return valid_name(f"fluss_{table}")
