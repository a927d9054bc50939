"""Assets that take what is new in a Fluss table, each row once.

A run's ranges are pinned in the checkpoint store under root run, asset and partition before
anything is read, so retries and re-executions replay the same rows. The checkpoint is committed
after the sink holds them. Run tags and metadata mirror both for people; wiping the asset in
Dagster changes nothing about what was read.
"""

# Dagster reads the types of an asset's arguments as it is made, so they are no strings here.

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from fluss_client import FlussConnection
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.incremental.settings import Until
from fluss_orchestrate.core.loading import as_reader
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import FunctionSink
from fluss_orchestrate.core.sinks.base import ReadPlan, Sink, SinkResult, identity_of

MakeSink = Callable[[FlussConnection], Sink]
Transform = Callable[[pa.RecordBatchReader], Any]


class TransformingSink:
    """Changes rows on their way into a sink.

    `transform` gets a reader and returns a reader or a frame. It must give the same for the same
    rows, and may be called once per range of a plan: it sees no row of another range.
    """

    def __init__(self, sink: Sink, transform: Transform) -> None:
        self._sink = sink
        self._transform = transform

    @property
    def identity(self) -> str:
        """That of the sink."""
        return identity_of(self._sink)

    @property
    def needs_change_type(self) -> bool:
        """As the sink says."""
        return self._sink.needs_change_type

    @property
    def exactly_once(self) -> bool:
        """What the sink itself promises."""
        return self._sink.exactly_once

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """What the sink holds of the plan."""
        return self._sink.already_done(plan)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Take the changed rows of the plan."""
        return self._sink.write(plan, lambda part: as_reader(self._transform(read(part))))


def incremental_fluss_asset(
    key: dg.AssetKey | Sequence[str] | str,
    *,
    table: str,
    sink: Sink | MakeSink,
    transform: Transform | None = None,
    checkpoint: str | None = None,
    until: Until = "latest",
    max_offsets: int | None = None,
    scan_options: Mapping[str, Any] | None = None,
    resource_key: str = "fluss",
    pool: str | None = None,
    **asset_options: Any,
) -> dg.AssetsDefinition:
    """An asset whose materialisation brings what is new in `table` into `sink`.

    `sink` is a sink, or a function that makes one from the connection when the asset runs.
    `transform` changes rows on the way. `checkpoint` is the asset's key unless given; `until`,
    `max_offsets` and `scan_options` are those of the core's increments. With time partitions, a
    partition takes the rows that were committed in its window, whoever asks and however often.
    Runs of one asset queue in a pool of their own, so that a limit of one makes them take turns.
    """
    asset_key = dg.AssetKey.from_coercible(key)
    name = checkpoint or f"dagster/{asset_key.to_user_string()}"

    def bring(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        fluss = getattr(context.resources, resource_key)
        made = sink(fluss.connection) if callable(sink) else sink
        if transform is not None:
            made = TransformingSink(made, transform)
        done: dg.MaterializeResult[Any] = fluss.incremental(
            context,
            table,
            made,
            name=name,
            until=until,
            max_offsets=max_offsets,
            **(scan_options or {}),
        )
        return done

    options = {"description": f"What is new in {table}, each row once.", **asset_options}
    kinds = {"fluss", *options.pop("kinds", ())}
    metadata = {"fluss/source_table": table, "fluss/checkpoint": name}
    made: dg.AssetsDefinition = dg.asset(
        key=asset_key,
        kinds=kinds,
        metadata={**metadata, **options.pop("metadata", {})},
        required_resource_keys={resource_key, *options.pop("required_resource_keys", ())},
        pool=pool or f"fluss/{table}",
        **options,
    )(bring)
    return made


def fluss_incremental(
    *,
    table: str,
    sink: Sink | MakeSink | None = None,
    key: dg.AssetKey | Sequence[str] | str | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """`incremental_fluss_asset` as a decorator.

    With a `sink` the function changes the rows on their way there: `def asset(rows) -> rows`.
    Without one it takes them itself, **at least once**: `def asset(rows)`, or `def asset(rows,
    plan)` to keep the plan's id beside what it stores and be exact. Other options are those of
    `incremental_fluss_asset`.
    """

    def decorate(function: Callable[..., Any]) -> dg.AssetsDefinition:
        wanted = key if key is not None else getattr(function, "__name__", "")
        options.setdefault("description", function.__doc__ or f"What is new in {table}.")
        if sink is not None:
            return incremental_fluss_asset(
                wanted, table=table, sink=sink, transform=function, **options
            )
        if "transform" in options:
            raise ConfigError("the decorated function is the transform: give a sink for it")
        takes_plan = function.__code__.co_argcount > 1
        taker = FunctionSink(function, pass_plan=takes_plan)
        return incremental_fluss_asset(wanted, table=table, sink=taker, **options)

    return decorate
