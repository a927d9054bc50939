"""Databases, tables and partitions that exist before the data arrives, and go away on time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.errors import argument_errors
from fluss_orchestrate.airflow.operators.base import FlussOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_orchestrate.core.provisioning import PartitionWindow, TableSpec


class FlussCreateDatabaseOperator(FlussOperator):
    """Create a database if there is none of the name.

    Args:
        database: The name.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
    """

    template_fields = ("fluss_conn_id", "database")

    def __init__(self, *, database: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.database = database

    def work(self, context: Context) -> dict[str, Any]:
        """Create the database, and return whether it was new.

        Args:
            context: The context of the Airflow task.
        """
        admin = self.hook.get_conn().get_admin().result()
        existed = admin.database_exists(self.database).result()
        admin.create_database(self.database, ignore_if_exists=True).result()
        return {"database": self.database, "created": not existed}


class FlussProvisionTablesOperator(FlussOperator):
    """Create and alter tables as their specs say; nothing is dropped or rebuilt.

    Args:
        specs: A path to a YAML file, YAML text, one `TableSpec` or mapping, or a list of them. A
            relative path is looked for beside the DAG's file, in the DAG's `template_searchpath`,
            and in the working directory, in this order.
        dry_run_only: Log and return the plan, and change nothing.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
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
        """Plan, log and apply the changes, and return them.

        Args:
            context: The context of the Airflow task.
        """
        from fluss_orchestrate.core.provisioning import apply_tables, plan_tables

        client = self.hook.get_conn()
        with argument_errors("specs"):
            specs = self._specs(context)
        planned = plan_tables(client, specs)
        for line in str(planned).splitlines():
            self.log.info("plan: %s", line)
        tables = [spec.table for spec in planned.specs]
        if self.dry_run_only:
            return {"tables": tables, "planned": planned.to_json(), "changes": []}
        done = apply_tables(client, planned)
        return {"tables": tables, "changes": [str(change) for change in done]}

    def _specs(self, context: Context) -> list[TableSpec]:
        from fluss_orchestrate.core.provisioning import TableSpec, load_table_specs

        if isinstance(self.specs, str):
            return load_table_specs(_found_file(self.specs, context))
        given = [self.specs] if isinstance(self.specs, (Mapping, TableSpec)) else self.specs
        return [s if isinstance(s, TableSpec) else TableSpec.from_mapping(s) for s in given]


def _found_file(specs: str, context: Context) -> str:
    """Return the file that a relative path means; text and absolute paths as they are."""
    name = Path(specs) if "\n" not in specs else None
    if name is None or name.is_absolute():
        return specs
    dag: Any = context["dag"]
    searched = getattr(dag, "template_searchpath", None) or ()
    folders = [dag.folder, *([searched] if isinstance(searched, str) else searched), "."]
    for folder in folders:
        if (Path(folder) / name).is_file():
            return str(Path(folder) / name)
    from fluss_client.errors import ConfigError

    raise ConfigError(
        f"there is no file {specs} in {', '.join(str(Path(f).absolute()) for f in folders)}: put "
        "it beside the DAG's file, or give YAML text of several lines"
    )


class FlussPartitionWindowOperator(FlussOperator):
    """Create the partitions of the next periods and drop those past retention.

    A partition that the lake or a checkpoint still needs is kept, and the result says why.

    Args:
        table: The table, as `database.table`.
        unit: `hour`, `day`, `month`, `quarter` or `year`.
        ahead: How many periods after the present one are created.
        retain: How many periods before the present one are kept; None keeps all.
        key: The partition column with the time, if the table has several.
        others: The values of the other partition columns.
        time_zone: The time zone of the partitions, and of a `now` without one.
        now: The present: a time, or a date. By default the run's logical date, or the real
            present for runs without one.
        force: Drop partitions that are still needed, too.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
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
        now: str | date | None = None,
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
        """Plan, log and apply, and return what was created, dropped and kept.

        Args:
            context: The context of the Airflow task.
        """
        from fluss_orchestrate.core.provisioning import (
            apply_partition_window,
            plan_partition_window,
        )

        client = self.hook.get_conn()
        with argument_errors("the partition window"):
            window, now = self._window(), self._now(context)
        planned = plan_partition_window(client, window, now=now, guards=() if self.force else None)
        self.log.info("plan: %s", planned.to_json())
        return apply_partition_window(client, planned).to_json()

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
        from fluss_client.engine import time_zone
        from fluss_orchestrate.core.times import time_ms

        now = context.get("logical_date") if self.now is None else self.now
        if isinstance(now, str) and not now.lstrip("-").isdigit():
            with suppress(ValueError):  # what is no time at all is refused below
                now = datetime.fromisoformat(now)
        elif isinstance(now, date) and not isinstance(now, datetime):
            now = datetime.combine(now, datetime.min.time())
        if isinstance(now, datetime) and now.tzinfo is None:
            # A date means the day of the partitions, so it is read in their zone.
            now = now.replace(tzinfo=time_zone(self.time_zone))
        return None if now is None else datetime.fromtimestamp(time_ms(now) / 1000, UTC)


class FlussDropPartitionsOperator(FlussOperator):
    """Drop partitions.

    A partition that does not exist is no error. One that the lake or a checkpoint still needs is
    an error that says who needs it.

    Args:
        table: The table, as `database.table`.
        partitions: One mapping of column to value, or a list of them.
        force: Drop partitions that are still needed, too.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
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
        """Drop the partitions, and return those that existed.

        Args:
            context: The context of the Airflow task.
        """
        from fluss_orchestrate.core.provisioning.dropping import drop_partitions

        given = [self.partitions] if isinstance(self.partitions, Mapping) else self.partitions
        dropped = drop_partitions(self.hook.get_conn(), self.table, given, force=self.force)
        return {"table": self.table, "dropped": [p.partition_name for p in dropped]}
