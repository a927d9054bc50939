"""Data versions: the same as long as what an asset stands for is the same.

They are digests of where the table's logs end, or of how far a checkpoint is. So a run that found
nothing new leaves the version as it was, and what is downstream of it does not become stale.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

from fluss_client import FlussConnection, TableInfo
from fluss_client.model.cluster import OffsetSpec
from fluss_client.runtime import runtime
from fluss_orchestrate.core.checkpoints.position import place_order
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental.observe import observe_offsets, offsets_of
from fluss_orchestrate.core.plan import Place
from fluss_orchestrate.core.receipts import Receipt


def position_version(
    table: TableIdentity, offsets: Mapping[Place, int], generation: Any = None
) -> dg.DataVersion:
    """Return the version of everything before some offsets; places without rows do not count."""
    places = sorted((place for place, offset in offsets.items() if offset), key=place_order)
    ends = [[*place, offsets[place]] for place in places]
    return _digest([table.to_json(), ends, generation])


def table_version(
    connection: FlussConnection, info: TableInfo, partitions: Iterable[str] | None = None
) -> dg.DataVersion:
    """Return the version of a table, or of some of its partitions, as it is now."""
    backend = connection.core.backend
    alias = connection.config.resolved_alias()
    if partitions is None:
        view = runtime().call(observe_offsets(backend, alias, info))
        return position_version(view.identity, view.latest)
    wanted = set(partitions)
    found = connection.get_admin().result().list_partition_infos(info.table_path).result()
    ids = [p.partition_id for p in found if p.partition_name in wanted]
    latest = runtime().call(offsets_of(backend, info, ids, OffsetSpec.latest()))
    return position_version(TableIdentity.of(alias, info), latest)


def plan_version(receipts: Iterable[Receipt]) -> dg.DataVersion:
    """Return the version of the rows of some intervals, each of which has one plan for ever."""
    return _digest([[r.table.to_json(), [part.to_json() for part in r.ranges]] for r in receipts])


def _digest(value: Any) -> dg.DataVersion:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return dg.DataVersion(hashlib.sha256(text.encode()).hexdigest()[:32])
