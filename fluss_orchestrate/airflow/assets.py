"""Tables as Airflow assets: one name and one URI per table, `fluss://cluster/database/table`.

Airflow calls these functions while it parses DAGs, so they import nothing heavy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote

from airflow.sdk import Asset, conf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import AssetWatcher

SCHEME = "fluss"
CONFIG_SECTION = "fluss"
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


def fluss_table_asset(
    table: str,
    *,
    cluster: str | None = None,
    extra: dict[str, Any] | None = None,
    watchers: Sequence[AssetWatcher] = (),
) -> Asset:
    """The asset of a table, the same wherever it is named.

    `table` is `database.table`. `cluster` is the alias that the connection has, by default
    `[fluss] cluster_alias`. Name and URI are both made of them: Airflow refuses a second name for
    one URI. A task or watcher whose connection has another alias fails.
    """
    uri = asset_uri(table, cluster)
    for watcher in watchers:
        _expect_cluster(watcher.trigger, split_uri(uri)[0])
    return Asset(name=uri, uri=uri, extra=extra or {}, watchers=list(watchers))


def _expect_cluster(trigger: Any, alias: str) -> None:
    """Let the trigger of a watcher check that its connection is of the asset's cluster."""
    from fluss_orchestrate.airflow.triggers.watching import FlussWatchTrigger

    named = getattr(trigger, "trigger", trigger)  # Airflow's MessageQueueTrigger has ours in it
    if isinstance(named, FlussWatchTrigger) and named.cluster is None:
        named.cluster = alias


def asset_uri(table: str, cluster: str | None = None) -> str:
    """`fluss://cluster/database/table`."""
    database, dot, name = table.partition(".")
    if not dot or not database or not name:
        raise ValueError(f"'{table}' is no table: write database.table")
    alias = cluster or conf.get(CONFIG_SECTION, "cluster_alias", fallback="default")
    _check(alias)
    return f"{SCHEME}://{alias}/{quote(database)}/{quote(name)}"


def create_asset(
    *, uri: str | None = None, table: str = "", cluster: str | None = None, **more: Any
) -> Asset:
    """What Airflow's hook lineage makes an asset with."""
    found = uri or asset_uri(table, cluster)
    return Asset(name=found, uri=found, **more)


def normalise_uri(parts: SplitResult) -> SplitResult:
    """The URI in the one form it has; `ValueError` for one that names no table."""
    names = [unquote(name) for name in parts.path.strip("/").split("/")]
    if len(names) != 2 or not all(names) or parts.query:
        raise ValueError("a Fluss table's URI is fluss://cluster/database/table")
    _check(parts.netloc)
    path = "/" + "/".join(quote(name) for name in names)
    return parts._replace(scheme=SCHEME, path=path)


def to_openlineage(asset: Asset, lineage_context: Any) -> Any:
    """The asset as a dataset of OpenLineage: the cluster is its namespace, the table its name."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    cluster, table = split_uri(asset.uri)
    return Dataset(namespace=f"{SCHEME}://{cluster}", name=table)


def split_uri(uri: str) -> tuple[str, str]:
    """The alias and `database.table` of a table's URI."""
    scheme, _, rest = uri.partition("://")
    cluster, _, path = rest.partition("/")
    names = [unquote(name) for name in path.split("/")]
    if scheme != SCHEME or not cluster or len(names) != 2 or not all(names):
        raise ValueError(f"'{uri}' is no table URI: write fluss://cluster/database/table")
    return cluster, ".".join(names)


def _check(alias: str) -> None:
    if not _ALIAS.match(alias):
        raise ValueError(
            f"'{alias}' is no cluster alias: use letters, digits, '.', '_' and '-', beginning "
            "with a letter or digit"
        )
