"""Assets that take what is new in a Fluss table, each row once.

A run's ranges are pinned in the checkpoint store under root run, asset and partition before
anything is read, so retries and re-executions replay the same rows. The checkpoint is committed
after the sink holds them. Run tags and metadata mirror both for people; wiping the asset in
Dagster changes nothing about what was read.

What a decorated function of an increment asks for, by the names and types of its parameters.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import dagster as dg
import pyarrow as pa

from fluss_client import FlussConnection
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.incremental.planning.settings import Until
from fluss_orchestrate.core.loading import as_reader
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import FunctionSink
from fluss_orchestrate.core.sinks.base import (
    ReadPlan,
    Sink,
    SinkForm,
    SinkResult,
    identity_of,
    needs_order,
)
from fluss_orchestrate.core.sinks.registry import declarations
from fluss_orchestrate.dagster.compat import pool_of
from fluss_orchestrate.dagster.options import AssetOptions, Dep, Key, checked_options
from fluss_orchestrate.dagster.tables import DagsterFlussTranslator, shared_attributes

PLAN = "plan"
CONTEXT = "context"
ROWS = "rows"
_CONTEXTS = (dg.AssetExecutionContext, dg.OpExecutionContext)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class RowsFunction:
    """A function of rows, and what it wants beside them.

    `plan` is the parameter of type `ScanPlan`, or one of that name without a type; `context` alike.
    `rows` is the one of that name, else the first that is left and no resource or config. All the
    others are Dagster's own: resources, `config`, and inputs that are loaded.
    """

    function: Callable[..., Any]
    rows: str
    plan: str | None
    context: str | None
    others: Mapping[str, inspect.Parameter]
    """What Dagster gives, with types instead of their names."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> RowsFunction:
        """Read a function's parameters.

        Raises:
            ConfigError: if no parameter takes the rows, or it takes any number of them.
        """
        called = getattr(function, "__name__", repr(function))
        left = dict(_parameters(function, called))
        plan = _taken(left, PLAN, (ScanPlan,))
        context = _taken(left, CONTEXT, _CONTEXTS)
        plain = [name for name, one in left.items() if not _is_given_by_dagster(one)]
        rows = ROWS if ROWS in left else next(iter(plain), None)
        if rows is None:
            raise ConfigError(f"{called}: it has no parameter for the rows: add one, named rows")
        del left[rows]
        return cls(function, rows, plan, context, left)

    def bound(
        self, context: dg.AssetExecutionContext, given: Mapping[str, Any]
    ) -> Callable[[pa.RecordBatchReader, ScanPlan], Any]:
        """The function of rows and plan alone, with what Dagster gave for this run."""
        own = {name: given[name] for name in self.others}
        if self.context is not None:
            own[self.context] = context

        def call(rows: pa.RecordBatchReader, plan: ScanPlan) -> Any:
            words = own if self.plan is None else {**own, self.plan: plan}
            return self.function(**words, **{self.rows: rows})

        call.__name__ = getattr(self.function, "__name__", "function")
        return call


def _parameters(function: Callable[..., Any], called: str) -> Mapping[str, inspect.Parameter]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        # A type that only type checkers import; Dagster says so if it needs it.
        hints = {}
    found = inspect.signature(function).parameters
    for one in found.values():
        if one.kind in _VARIABLE or one.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigError(
                f"{called}: parameter {one} has no name by which it is given: name the parameters "
                "that it needs, such as rows, plan, context and resources"
            )
    return {
        name: one.replace(annotation=hints.get(name, one.annotation)) for name, one in found.items()
    }


def _taken(left: dict[str, inspect.Parameter], name: str, types: tuple[type, ...]) -> str | None:
    """Take a parameter out of `left`: the one with such a type, or of that name and no type."""
    for each, one in left.items():
        untyped = one.annotation is inspect.Parameter.empty
        if one.annotation in types or (untyped and each == name):
            del left[each]
            return each
    return None


def _is_given_by_dagster(parameter: inspect.Parameter) -> bool:
    """Whether it is a resource or config, by its type."""
    kind = parameter.annotation
    if typing.get_origin(kind) is typing.Annotated:
        return True  # so is dg.ResourceParam[...]
    known = (dg.ConfigurableResource, dg.Config)
    return isinstance(kind, type) and issubclass(kind, known)


# Dagster reads the types of an asset's arguments as it is made, so they are no strings here.


MakeSink = Callable[[FlussConnection], Sink]
Transform = Callable[[pa.RecordBatchReader], Any]


class TransformingSink:
    """Changes rows on their way into a sink.

    Args:
        sink: The sink that receives the changed rows.
        transform: Gets a reader, and returns a reader or a frame. It must return the same for the
            same rows. It may be called once per range of a plan, so it does not see the rows of
            other ranges.
        pass_plan: Pass the plan to `transform` as a second argument.

    Raises:
        ConfigError: The sink reads the rows by itself (`SparkIcebergSink`), so that they cannot be
            changed on their way.
    """

    changes_rows = True

    def __init__(
        self, sink: Sink, transform: Callable[..., Any], *, pass_plan: bool = False
    ) -> None:
        if getattr(sink, "reads_itself", False):
            raise ConfigError(
                f"{identity_of(sink)} reads the rows of a plan by itself (on Spark), so nothing "
                "could change them on their way: use IcebergSink, or leave the function out"
            )
        self._sink = sink
        self._transform = transform
        self._pass_plan = pass_plan

    @property
    def identity(self) -> str:
        """The same as of the inner sink."""
        return identity_of(self._sink)

    @property
    def form(self) -> SinkForm | None:
        """The same as of the inner sink."""
        return self._sink.form

    @property
    def contract(self) -> Mapping[str, Any] | None:
        """The contract of the inner sink, if it has one."""
        return getattr(self._sink, "contract", None)

    @property
    def exactly_once(self) -> bool:
        """What the sink itself promises."""
        return self._sink.exactly_once

    def needs_order(self, plan: ScanPlan) -> bool:
        """Return whether the inner sink must get rows in the order of the log.

        Args:
            plan: A plan of the table that is read.
        """
        return needs_order(self._sink, plan)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Write the changed rows of a plan.

        Args:
            plan: The plan.
            read: Returns a reader of the rows of a part of the plan.
        """
        more = (plan,) if self._pass_plan else ()
        return self._sink.write(plan, lambda part: as_reader(self._transform(read(part), *more)))


def incremental_fluss_asset(
    key: Key,
    *,
    table: str,
    sink: Sink | MakeSink,
    transform: Transform | None = None,
    checkpoint: str | None = None,
    until: Until = "latest",
    max_offsets: int | None = None,
    scan_options: Mapping[str, Any] | None = None,
    translator: DagsterFlussTranslator | None = None,
    resource_key: str = "fluss",
    pool: str | None = None,
    **asset_options: Unpack[AssetOptions],
) -> dg.AssetsDefinition:
    """Return an asset that brings the new rows of `table` into `sink` when it is materialised.

    With time partitions, a partition takes the rows that were committed in its window, whichever
    run asks, and each time the same ones. The asset depends on the table's own asset, and has its
    group, owners and tags unless others are given.

    Args:
        key: The key of the asset.
        table: The table to read, as `database.table`.
        sink: Where the rows go: a sink, or a function that makes one from the connection.
        transform: Changes the rows on their way, as in `TransformingSink`.
        checkpoint: The name of the checkpoint; by default `dagster/` and the key of the asset.
        until: Where an increment ends, as for `IncrementalScan.plan`.
        max_offsets: The largest number of offsets of an increment.
        scan_options: Further arguments of `IncrementalScan`.
        translator: Which asset the table is; by default `database/table`.
        resource_key: The key of the `FlussResource`.
        pool: The pool in which the runs of the asset wait for each other; by default
            `fluss_database_table`.
        **asset_options: Further arguments of Dagster's asset.

    Raises:
        ConfigError: An argument is unknown.
    """

    def open_sink(
        _context: dg.AssetExecutionContext, connection: FlussConnection, _given: Mapping[str, Any]
    ) -> Sink:
        made = made_sink(sink, connection)
        return made if transform is None else TransformingSink(made, transform)

    options = checked_options(AssetOptions, asset_options, "incremental_fluss_asset")
    scan = _Scan(
        table,
        checkpoint,
        until,
        max_offsets,
        scan_options or {},
        (translator or DagsterFlussTranslator()).spec_of(table),
        resource_key,
        pool,
        _kind(sink),
    )
    return _asset(dg.AssetKey.from_coercible(key), scan, open_sink, {}, options)


def fluss_incremental(
    *,
    table: str,
    sink: Sink | MakeSink | None = None,
    key: Key | None = None,
    checkpoint: str | None = None,
    until: Until = "latest",
    max_offsets: int | None = None,
    scan_options: Mapping[str, Any] | None = None,
    translator: DagsterFlussTranslator | None = None,
    resource_key: str = "fluss",
    pool: str | None = None,
    **asset_options: Unpack[AssetOptions],
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Make an incremental asset of a function; a decorator.

    With a `sink`, the function changes the rows on their way there: `def asset(rows) -> rows`.
    Without one it stores them itself, **at least once**: `def asset(rows)`. To be exactly-once,
    `def asset(rows, plan)` stores the id of the plan beside its rows. A `context`, resources,
    `config` and inputs are passed as to any asset, by name and type.

    Args:
        table: The table to read, as `database.table`.
        sink: Where the rows go: a sink, or a function that makes one from the connection.
        key: The key of the asset; by default the name of the function.
        checkpoint: The name of the checkpoint; by default the key of the asset.
        until: Where an increment ends, as for `IncrementalScan.plan`.
        max_offsets: The largest number of offsets of an increment.
        scan_options: Further arguments of `IncrementalScan`.
        translator: Which asset the table is; by default `database/table`.
        resource_key: The key of the `FlussResource`.
        pool: The pool in which the runs of the asset wait for each other; by default
            `fluss_database_table`.
        **asset_options: Further arguments of Dagster's asset.

    Raises:
        ConfigError: An argument is unknown, or no parameter takes the rows.
    """
    if "transform" in asset_options:
        raise ConfigError("the decorated function is the transform: give a sink for it")
    options = checked_options(AssetOptions, asset_options, "fluss_incremental")
    scan = _Scan(
        table,
        checkpoint,
        until,
        max_offsets,
        scan_options or {},
        (translator or DagsterFlussTranslator()).spec_of(table),
        resource_key,
        pool,
        "" if sink is None else _kind(sink),
    )

    def decorate(function: Callable[..., Any]) -> dg.AssetsDefinition:
        wanted = RowsFunction.of(function)
        asset_key = dg.AssetKey.from_coercible(
            key if key is not None else getattr(function, "__name__", "")
        )

        def open_sink(
            context: dg.AssetExecutionContext,
            connection: FlussConnection,
            given: Mapping[str, Any],
        ) -> Sink:
            call = wanted.bound(context, given)
            if sink is None:
                return FunctionSink(call, pass_plan=True, identity=asset_key.to_user_string())
            return TransformingSink(made_sink(sink, connection), call, pass_plan=True)

        said = {"description": function.__doc__ or f"What is new in {table}."}
        return _asset(asset_key, scan, open_sink, wanted.others, {**said, **options})

    return decorate


@dataclass(frozen=True, slots=True)
class _Scan:
    """What is scanned, and how."""

    table: str
    checkpoint: str | None
    until: Until
    max_offsets: int | None
    options: Mapping[str, Any]
    source: dg.AssetSpec
    """The asset of the table."""
    resource_key: str
    pool: str | None
    kind: str
    """The kind of the sink, if it is known before it is opened."""


def _kind(sink: Sink | MakeSink) -> str:
    """The kind of a sink that Dagster shows as an icon; of a function's sink it is not known."""
    declared = {declaration.sink: name for name, declaration in declarations().items()}
    return declared.get(type(sink), "") if not callable(sink) else ""


def with_source(given: Iterable[Dep] | None, source: dg.AssetKey, partitioned: bool) -> list[Dep]:
    """The dependencies with the table's own asset, unless it is one of them."""
    deps = list(given or ())
    if any(dg.AssetDep.from_coercible(dep).asset_key == source for dep in deps):
        return deps
    # A window of commit times may have rows of any partition of the table.
    mapping = dg.AllPartitionMapping() if partitioned else None
    return [*deps, dg.AssetDep(source, partition_mapping=mapping)]


OpenSink = Callable[[dg.AssetExecutionContext, FlussConnection, Mapping[str, Any]], Sink]
"""Makes the sink of one run from its context, the connection and what Dagster gave."""


def _asset(
    asset_key: dg.AssetKey,
    scan: _Scan,
    open_sink: OpenSink,
    parameters: Mapping[str, inspect.Parameter],
    asset_options: Mapping[str, Any],
) -> dg.AssetsDefinition:
    """The asset: `parameters` are what Dagster is to give beside context and connection."""
    name = scan.checkpoint or f"dagster/{asset_key.to_user_string()}"

    def bring(context: dg.AssetExecutionContext, **given: Any) -> dg.MaterializeResult[Any]:
        fluss = given[scan.resource_key]
        done: dg.MaterializeResult[Any] = fluss.incremental(
            context,
            scan.table,
            open_sink(context, fluss.connection, given),
            checkpoint=name,
            until=scan.until,
            max_offsets=scan.max_offsets,
            scan_options=scan.options,
            source=scan.source.key,
        )
        return done

    options = {
        "description": f"What is new in {scan.table}, each row once.",
        **shared_attributes(scan.source),
        **asset_options,
    }
    resources = {scan.resource_key, *options.pop("required_resource_keys", ())}
    _declare(bring, parameters, sorted(resources - parameters.keys()))
    kinds = {"fluss", *((scan.kind,) if scan.kind else ()), *options.pop("kinds", ())}
    metadata = {"fluss/source_table": scan.table, "fluss/checkpoint": name}
    partitioned = options.get("partitions_def") is not None
    made: dg.AssetsDefinition = dg.asset(
        key=asset_key,
        kinds=kinds,
        deps=with_source(options.pop("deps", None), scan.source.key, partitioned),
        metadata={**metadata, **options.pop("metadata", {})},
        pool=scan.pool or pool_of(scan.table),
        **options,
    )(bring)
    return made


def _declare(
    function: Callable[..., Any],
    parameters: Mapping[str, inspect.Parameter],
    resources: Sequence[str],
) -> None:
    """Give a function the parameters by which Dagster knows what to give it.

    Dagster takes resources either as parameters or as keys of the asset, never as both.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [inspect.Parameter("context", kind, annotation=dg.AssetExecutionContext)]
    resource: Any = dg.ResourceParam
    own += [inspect.Parameter(name, kind, annotation=resource[Any]) for name in resources]
    own += [p.replace(kind=kind, default=inspect.Parameter.empty) for p in parameters.values()]
    empty = inspect.Parameter.empty
    function.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in own if p.annotation is not empty} | {
        "return": dg.MaterializeResult
    }


def made_sink(sink: Sink | MakeSink, connection: FlussConnection) -> Sink:
    """Return the sink, made from the connection if a function was given."""
    return sink(connection) if callable(sink) else sink
