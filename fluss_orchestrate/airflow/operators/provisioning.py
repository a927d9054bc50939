"""Databases, tables and partitions that exist before the data arrives, and go away on time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.operators.base import FlussOperator

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.sdk import Context

    from fluss_orchestrate.core.provisioning import PartitionWindow, TableSpec


class FlussCreateDatabaseOperator(FlussOperator):
    """Create a database if it is not there."""

    template_fields = ("fluss_conn_id", "database")

    def __init__(self, *, database: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.database = database

    def work(self, context: Context) -> dict[str, Any]:
        """Create it; whether it was new."""
        admin = self.hook.get_conn().get_admin().result()
        existed = admin.database_exists(self.database).result()
        admin.create_database(self.database, ignore_if_exists=True).result()
        return {"database": self.database, "created": not existed}


class FlussProvisionTablesOperator(FlussOperator):
    """Bring tables to what their specs ask for; never drops or rebuilds anything.

    `specs` is a path to a YAML file, YAML text, one `TableSpec` or mapping, or a list of them.
    With `dry_run_only` the plan is logged and returned, and nothing changes.
    """

    template_fields = ("fluss_conn_id", "specs")
    template_fields_renderers = {"specs": "yaml"}

    def __init__(
        self,
        *,
        specs: str | TableSpec | Mapping[str, Any] | Sequence[TableSpec | Mapping[str, Any]],
        dry_run_only: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.specs = specs
        self.dry_run_only = dry_run_only

    def work(self, context: Context) -> dict[str, Any]:
        """Plan, log, apply; the changes that were made."""
        from fluss_orchestrate.core.provisioning import apply, plan

        client = self.hook.get_conn()
        planned = plan(client, self._specs())
        for line in str(planned).splitlines():
            self.log.info("plan: %s", line)
        tables = [spec.table for spec in planned.specs]
        if self.dry_run_only:
            return {"tables": tables, "planned": planned.to_json(), "changes": []}
        done = apply(client, planned)
        return {"tables": tables, "changes": [str(change) for change in done]}

    def _specs(self) -> list[TableSpec]:
        from fluss_orchestrate.core.provisioning import TableSpec, load_specs

        if isinstance(self.specs, str):
            return load_specs(self.specs)
        given = [self.specs] if isinstance(self.specs, (Mapping, TableSpec)) else self.specs
        return [s if isinstance(s, TableSpec) else TableSpec.from_mapping(s) for s in given]


class FlussPartitionWindowOperator(FlussOperator):
    """Create the partitions of the next periods and drop those past retention.

    `now` is the run's logical date, or the present for runs without one. A partition that the
    lake or a checkpoint still needs stays, and the result says why; `force` drops it all the same.
    """

    template_fields = ("fluss_conn_id", "table", "ahead", "retain", "now")

    def __init__(
        self,
        *,
        table: str,
        unit: str,
        ahead: int = 2,
        retain: int | None = None,
        key: str | None = None,
        others: Mapping[str, Sequence[str]] | None = None,
        time_zone: str = "UTC",
        now: str | datetime | None = None,
        force: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.unit = unit
        self.ahead = ahead
        self.retain = retain
        self.key = key
        self.others = others
        self.time_zone = time_zone
        self.now = now
        self.force = force

    def work(self, context: Context) -> dict[str, Any]:
        """Plan, log, apply; what was created, dropped and kept."""
        from fluss_orchestrate.core.provisioning import apply_window, plan_window

        client = self.hook.get_conn()
        planned = plan_window(
            client, self._window(), now=self._now(context), guards=() if self.force else None
        )
        self.log.info("plan: %s", planned.to_json())
        return apply_window(client, planned).to_json()

    def _window(self) -> PartitionWindow:
        from fluss_orchestrate.core.provisioning import PartitionWindow

        return PartitionWindow(
            self.table,
            self.unit,
            int(self.ahead),
            None if self.retain is None else int(self.retain),
            self.key,
            self.others or {},
            self.time_zone,
        )

    def _now(self, context: Context) -> datetime | None:
        from datetime import UTC, datetime

        from fluss_orchestrate.core.times import time_ms

        now = context.get("logical_date") if self.now is None else self.now
        return None if now is None else datetime.fromtimestamp(time_ms(now) / 1000, UTC)


class FlussDropPartitionsOperator(FlussOperator):
    """Drop partitions, given as one mapping of column to value or a list of them.

    One that is not there is no error. One that the lake or a checkpoint still needs is an error
    that says who needs it, unless `force`.
    """

    template_fields = ("fluss_conn_id", "table", "partitions")
    template_fields_renderers = {"partitions": "json"}

    def __init__(
        self,
        *,
        table: str,
        partitions: Mapping[str, str] | Sequence[Mapping[str, str]],
        force: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.partitions = partitions
        self.force = force

    def work(self, context: Context) -> dict[str, Any]:
        """Drop them; which were there."""
        from fluss_orchestrate.core.provisioning.dropping import drop_partitions

        given = [self.partitions] if isinstance(self.partitions, Mapping) else self.partitions
        dropped = drop_partitions(self.hook.get_conn(), self.table, given, force=self.force)
        return {"table": self.table, "dropped": [p.partition_name for p in dropped]}
