"""The begin and the end of a plan as offsets of each place, from every form that users may give."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from fluss_client import Config, LakeSnapshot, OffsetSpec
from fluss_client.engine import Backend
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.errors import NotYetError, PartitionGoneError
from fluss_orchestrate.core.incremental.planning.guards import check_identity
from fluss_orchestrate.core.incremental.planning.observation import TableView, offsets_of
from fluss_orchestrate.core.incremental.planning.settings import (
    Offsets,
    ScanSettings,
    Start,
    Until,
    place_offsets,
)
from fluss_orchestrate.core.incremental.time.timestamps import NOT_YET_RETRY_MS, resolve_timestamp
from fluss_orchestrate.core.plan import Place
from fluss_orchestrate.core.receipts import Receipt, whole_position
from fluss_orchestrate.core.times import as_time_ms

PLACES_SHOWN = 20
"""How many places the error for an unknown one names."""


async def first_starts(
    backend: Backend, config: Config, view: TableView, start: Start, settings: ScanSettings
) -> dict[Place, int]:
    """Return the first offset of each existing place for the first plan."""
    if start == "latest":
        return dict(view.latest)
    if start in ("earliest", "state"):
        ids = view.partition_ids()
        earliest = await offsets_of(backend, view.info, ids, OffsetSpec.earliest())
        return {place: earliest.get(place, 0) for place in view.latest}
    moment = as_time_ms(start)
    if moment is not None:
        return await resolve_timestamp(backend, config, view, moment, settings.settle_ms)
    if not isinstance(start, Mapping):
        raise ConfigError(f"start cannot be '{start}'")
    given = known_offsets(view, start)
    return {place: given.get(place, 0) for place in view.latest}


async def ends(
    backend: Backend, config: Config, view: TableView, until: Until, settings: ScanSettings
) -> dict[Place, int]:
    """Return the end of a plan for the places that `until` names.

    Raises:
        NotYetError: A log has not reached its end yet.
    """
    if until == "latest":
        return dict(view.latest)
    moment = as_time_ms(until)
    if moment is not None:
        return await resolve_timestamp(backend, config, view, moment, settings.settle_ms)
    if until == "lake":
        until = await backend.get_lake_snapshot(view.info.table_path, None, True)
    if isinstance(until, Receipt):
        check_identity(view.identity, until.table)
        gone = [r for r in until.ranges if r.place not in view.latest]
        if gone and settings.on_partition_gone != "forget":
            raise PartitionGoneError(view.identity, gone)
        position = whole_position(until, view.latest)
        wanted = {p: o for p, o in position.items() if p in view.latest}
    elif isinstance(until, LakeSnapshot):
        of_lake = place_offsets(until.table_buckets_offset)
        wanted = {p: o for p, o in of_lake.items() if p in view.latest}
    elif isinstance(until, Mapping):
        wanted = known_offsets(view, until)
    else:
        raise ConfigError(
            f"until cannot be {until!r}: give 'latest', 'lake', a time, offsets, a lake snapshot "
            "or a receipt"
        )
    ahead = [p for p, o in wanted.items() if o > view.latest[p]]
    if ahead:
        ranges = [view.range_of(p, view.latest[p], wanted[p]) for p in ahead]
        raise NotYetError(
            f"{view.info.table_path}: the log has not come to the end that was asked for in "
            f"{len(ahead)} bucket(s); ask again soon",
            NOT_YET_RETRY_MS,
            ranges,
        )
    return wanted


def known_offsets(view: TableView, offsets: Offsets) -> dict[Place, int]:
    """Return offsets by place, and refuse places that the table does not have."""
    given = place_offsets(offsets)
    unknown = [place for place in given if place not in view.latest]
    if unknown:
        raise ConfigError(
            f"{view.info.table_path} has no place {unknown[0]} (partition id, bucket); its "
            f"partitions are {dict(view.partitions)}, its places {list(view.latest)[:PLACES_SHOWN]}"
        )
    return given


def describe(until: Until) -> str:
    """Return a short text of the end of a plan, for the history."""
    if isinstance(until, dt.datetime):
        return until.isoformat()
    if isinstance(until, LakeSnapshot):
        return f"lake snapshot {until.snapshot_id}"
    if isinstance(until, Receipt):
        return f"receipt of {until.run_key or until.kind}"
    if isinstance(until, Mapping):
        return "offsets"
    return str(until)
