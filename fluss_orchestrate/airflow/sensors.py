"""The sensors. Their condition is frozen once, and they wait without a worker slot."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from fluss_orchestrate.airflow.assets import check_assets, fluss_assets
from fluss_orchestrate.airflow.errors import airflow_errors, argument_errors
from fluss_orchestrate.airflow.flows import named_table
from fluss_orchestrate.airflow.hooks import FlussHook
from fluss_orchestrate.airflow.links import FlussConsoleLink, FlussTableLink
from fluss_orchestrate.airflow.receipts import check_asset_partitions, publish
from fluss_orchestrate.airflow.run_context import run_state
from fluss_orchestrate.airflow.scans import until_of
from fluss_orchestrate.airflow.templates import CheckedTemplates
from fluss_orchestrate.airflow.triggers.waiting import FlussConditionTrigger, outcome_of
from fluss_orchestrate.airflow.triggers.watching import default_poll_interval
from fluss_orchestrate.airflow.version_compat import (
    AirflowSensorTimeout,
    AirflowSkipException,
    conf,
)
from fluss_orchestrate.deprecated import accepts_old_parameters

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection, TablePath
    from fluss_orchestrate.core.conditions import Condition, LookReport

STATE_KEY = "fluss_condition"
DATA_INTERVAL_END = "data_interval_end"


class FlussSensor(CheckedTemplates, BaseSensorOperator):
    """A sensor whose condition is made once per task run and kept.

    What it waits for is resolved to offsets at the first look and stays: every retry, every
    reschedule and every restart of the triggerer waits for the same. A task that is cleared after
    its arguments have changed makes its condition anew. The task log says what is waited for and
    how far it is; a timeout says so, too.

    Args:
        table: The table, as `database.table`.
        fluss_conn_id: The Airflow connection of the cluster.
        deferrable: Whether the sensor waits in the triggerer, where all sensors of a cluster
            share one poller. By default as `[operators] default_deferrable` says.
        poll_interval: Seconds between two looks in the triggerer; `[fluss] poll_interval` by
            default.
        asset_partitions: Whether the sensor's outlets get one event for each partition that it has
            found, with the partition's name as the key.
        **kwargs: The arguments of Airflow's `BaseSensorOperator`, such as `timeout`,
            `poke_interval`, `mode` and `soft_fail`.
    """

    template_fields: Sequence[str] = ("fluss_conn_id", "table")
    operator_extra_links = (FlussTableLink(), FlussConsoleLink())

    def __init__(
        self,
        *,
        table: str,
        fluss_conn_id: str = FlussHook.default_conn_name,
        deferrable: bool | None = None,
        poll_interval: float | None = None,
        asset_partitions: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.asset_partitions = asset_partitions
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.table = table
        self.fluss_conn_id = fluss_conn_id
        self.deferrable = deferrable
        self.poll_interval = default_poll_interval() if poll_interval is None else poll_interval

    @cached_property
    def hook(self) -> FlussHook:
        """The hook of the sensor's connection."""
        return FlussHook(self.fluss_conn_id)

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """Return what to wait for, with everything resolved.

        Args:
            client: The cluster.
            context: Airflow's context.
        """
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        """Look once; then wait in the triggerer, or poke.

        Args:
            context: Airflow's context.

        Returns:
            What was found, as plain values.

        Raises:
            FlussTaskError: If a retry may help.
            FlussTaskFailedError: If no retry can help.
            AirflowSensorTimeout: If the time passes; it says how far the wait was.
        """
        self.check_not_empty()
        with airflow_errors():
            self._check_assets()
            if self.asset_partitions:
                check_asset_partitions(self.task_id)
        if not self.deferrable:
            return self._poke_until(context)
        with airflow_errors():
            condition = self._frozen(context)
            outcome = self._look(condition)
        if outcome is not None:
            return self._published(context, outcome)
        self.defer(
            **FlussConditionTrigger.deferral(
                self.fluss_conn_id, condition, self.poll_interval, self.timeout
            )
        )

    def _poke_until(self, context: Context) -> Any:
        """Poke as Airflow does; a timeout says what was waited for, and how far it was."""
        try:
            return super().execute(context)
        except (AirflowSensorTimeout, AirflowSkipException) as error:
            if not str(error).startswith("Sensor has timed out"):
                raise
            from fluss_orchestrate.core.lake import WaitTimedOutError

            with airflow_errors():
                condition = self._frozen(context)
            unmet = ": ".join([condition.unmet, *self._said[-1:]])
            said = WaitTimedOutError.after(condition.path, self.timeout, unmet)
            raise type(error)(f"{type(said).__name__}: {said}") from None

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Return what the trigger has found, or raise what it met.

        Args:
            context: Airflow's context.
            event: The event of the trigger.

        Raises:
            FlussTaskError: If a retry may help.
            FlussTaskFailedError: If no retry can help.
            AirflowSensorTimeout: If the time has passed; it says how far the wait was.
        """
        return self._published(context, outcome_of(event))

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Look once.

        Args:
            context: Airflow's context.

        Returns:
            Whether the condition holds, with what was found.
        """
        with airflow_errors():
            outcome = self._look(self._frozen(context))
        if outcome is None:
            return False
        return PokeReturnValue(True, self._published(context, outcome))

    def _published(self, context: Context, outcome: Mapping[str, Any]) -> dict[str, Any]:
        return publish(context, outcome, partitions=self.asset_partitions)

    def _look(self, condition: Condition) -> dict[str, Any] | None:
        from fluss_orchestrate.core.conditions import holds

        if not self._said:
            self._say(f"waiting until {condition.wanted}")
        return holds(self.hook.get_conn(), condition, self._report)

    @cached_property
    def _said(self) -> list[str]:
        """The reports of the looks of this process; a timeout names the last one."""
        return []

    @cached_property
    def _report(self) -> LookReport:
        from fluss_orchestrate.core.conditions import LookReport

        return LookReport(self._say)

    def _say(self, text: str) -> None:
        self._said[:] = [*self._said[-1:], text]
        self.log.info("%s", text)

    def _check_assets(self) -> None:
        uris = fluss_assets(self)
        if uris:
            check_assets(uris, [named_table(self.hook.named_alias, self.table)])

    def _frozen(self, context: Context) -> Condition:
        """Return the condition of this task run: as it was kept, or made and kept now."""
        from fluss_orchestrate.core.conditions import condition_from_json

        store = run_state(context, self.hook)
        now = {"arguments": self._arguments(), "series": context["ti"].max_tries}
        kept = store.get(STATE_KEY)
        if isinstance(kept, Mapping) and not self._is_outdated(kept, now):
            return condition_from_json(kept.get("condition", kept))
        client = self.hook.get_conn()
        with argument_errors(f"what {self.task_id} waits for"):
            made = self.condition(client, context)
        store.set(STATE_KEY, {"condition": made.to_json(), **now})
        return made

    def _is_outdated(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
        """Return whether the task was cleared and now waits for something else.

        Arguments alone do not show it: a template may give the present time at every look. A clear
        does: it raises the number of tries that the task may have, which retries do not change.
        """
        if "condition" not in kept:  # kept by an earlier version
            return bool(kept.get("table") != self.table)
        return bool(kept["series"] != now["series"] and kept["arguments"] != now["arguments"])

    def _arguments(self) -> str:
        """Return the rendered arguments in a form that can be compared."""
        given = repr([(name, getattr(self, name)) for name in self.template_fields])
        return hashlib.sha256(given.encode()).hexdigest()


class FlussLakeSnapshotSensor(FlussSensor):
    """Waits for the lake of a table.

    Without arguments it waits for a snapshot that is newer than the one at the first look.

    Args:
        covers: Wait until the lake holds everything up to `latest` (the end of the log at the
            first look), a time, `data_interval_end`, offsets by bucket, or another task's receipt.
        fresher_than: Wait until the oldest row that the lake lacks is younger than this: a
            `timedelta`, or seconds.
        after: Wait for a snapshot other than the one with this id.
        **kwargs: The arguments of `FlussSensor`: `table`, `fluss_conn_id`, `deferrable`,
            `poll_interval`, and those of Airflow's `BaseSensorOperator`.

    Raises:
        ValueError: If more than one of `covers`, `fresher_than` and `after` is given.
    """

    template_fields = ("fluss_conn_id", "table", "covers", "after")

    def __init__(
        self,
        *,
        covers: Any = None,
        fresher_than: timedelta | float | None = None,
        after: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if sum(given is not None for given in (covers, fresher_than, after)) > 1:
            raise ValueError("give one of covers, fresher_than and after")
        self.covers = covers
        self.fresher_than = fresher_than
        self.after = after

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """Return the condition of the snapshot, with its target resolved.

        Args:
            client: The connection to the cluster.
            context: The context of the Airflow task.
        """
        from fluss_client import TablePath
        from fluss_orchestrate.core.conditions import LakeFresh, NewSnapshot

        path = TablePath.parse(self.table)
        if self.fresher_than is not None:
            bound = self.fresher_than
            seconds = bound.total_seconds() if isinstance(bound, timedelta) else float(bound)
            return LakeFresh(path, int(seconds * 1000))
        if self.covers is not None:
            return self._covering(client, context)
        if self.after is not None:
            return NewSnapshot(path, int(self.after))
        from fluss_orchestrate.core.lake import lake_status

        return NewSnapshot(path, lake_status(client, path, times=False).snapshot_id)

    def _covering(self, client: FlussConnection, context: Context) -> Condition:
        from fluss_client import TablePath
        from fluss_client.errors import ConfigError
        from fluss_orchestrate.core.conditions import LakeCovers
        from fluss_orchestrate.core.lake import freeze_target
        from fluss_orchestrate.core.times import as_time_ms

        path = TablePath.parse(self.table)
        wanted = self.covers
        if wanted == DATA_INTERVAL_END:
            wanted = context.get(DATA_INTERVAL_END)
            if wanted is None:
                raise ConfigError(f"run {context['ti'].run_id} has no data interval to wait for")
        wanted = until_of(wanted, client)
        moment = as_time_ms(wanted)
        if moment is not None:
            # A time is exact once it is past and settled; the waiting sees to that.
            return LakeCovers(path, moment)
        return LakeCovers(path, freeze_target(client, path, wanted))


class FlussOffsetSensor(FlussSensor):
    """Waits until enough new offsets have come, or until the log has reached some offsets.

    Args:
        min_offsets: How many new offsets to wait for.
        checkpoint: Count from the position of this checkpoint; from the beginning, if there is no
            such checkpoint yet.
        start: Count from `latest` (the end at the first look, the default), `earliest`, a time,
            offsets by bucket, or another task's receipt.
        offsets: Wait until the log has reached these offsets by bucket, the end of a receipt, or
            a time.
        **kwargs: The arguments of `FlussSensor`: `table`, `fluss_conn_id`, `deferrable`,
            `poll_interval`, and those of Airflow's `BaseSensorOperator`.

    Raises:
        ValueError: If more than one of `checkpoint`, `start` and `offsets` is given.
    """

    template_fields = ("fluss_conn_id", "table", "min_offsets", "checkpoint", "start", "offsets")

    @accepts_old_parameters("FlussOffsetSensor")
    def __init__(
        self,
        *,
        min_offsets: int | str = 1,
        checkpoint: str | None = None,
        start: Any = None,
        offsets: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if sum(given is not None for given in (checkpoint, start, offsets)) > 1:
            raise ValueError("give one of checkpoint, start and offsets")
        self.min_offsets = min_offsets
        self.checkpoint = checkpoint
        self.start = start
        self.offsets = offsets

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """Return the condition, from a position that is found now.

        Args:
            client: The connection to the cluster.
            context: The context of the Airflow task.
        """
        from fluss_client import TablePath
        from fluss_orchestrate.core.conditions import OffsetsReached, RowsCame
        from fluss_orchestrate.core.lake import freeze_target

        path = TablePath.parse(self.table)
        if self.offsets is not None:
            target = freeze_target(client, path, until_of(self.offsets, client))
            return OffsetsReached(path, target.offsets, target.table.table_id)
        if self.checkpoint is not None:
            return self._after_checkpoint(client, path, self.checkpoint)
        if self.start == "earliest":
            return RowsCame(path, {}, None, int(self.min_offsets))
        start = "latest" if self.start in (None, "now") else until_of(self.start, client)
        target = freeze_target(client, path, start)
        return RowsCame(path, target.offsets, target.table.table_id, int(self.min_offsets))

    def _after_checkpoint(self, client: FlussConnection, path: TablePath, name: str) -> Condition:
        from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
        from fluss_orchestrate.core.conditions import RowsCame

        head = FlussCheckpointStore(client).head(name)
        position = None if head is None else head.state.position
        if position is None:
            return RowsCame(path, {}, None, int(self.min_offsets))
        return RowsCame(path, position.offsets, position.table.table_id, int(self.min_offsets))


class FlussTableSensor(FlussSensor):
    """Waits until a table exists, and returns its id.

    Args:
        **kwargs: The arguments of `FlussSensor`: `table`, `fluss_conn_id`, `deferrable`,
            `poll_interval`, and those of Airflow's `BaseSensorOperator`.
    """

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """Return the condition of the table.

        Args:
            client: The connection to the cluster.
            context: The context of the Airflow task.
        """
        from fluss_client import TablePath
        from fluss_orchestrate.core.conditions import TableExists

        return TableExists(TablePath.parse(self.table))


class FlussPartitionSensor(FlussSensor):
    """Waits until a partition exists.

    Args:
        partition: The values of all or some partition columns.
        **kwargs: The arguments of `FlussSensor`: `table`, `fluss_conn_id`, `deferrable`,
            `poll_interval`, and those of Airflow's `BaseSensorOperator`.
    """

    template_fields = ("fluss_conn_id", "table", "partition")

    def __init__(self, *, partition: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.partition = partition

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """Return the condition of the partition.

        Args:
            client: The connection to the cluster.
            context: The context of the Airflow task.
        """
        from fluss_client import TablePath
        from fluss_orchestrate.core.conditions import PartitionExists

        spec = {column: str(value) for column, value in self.partition.items()}
        return PartitionExists(TablePath.parse(self.table), spec)
