"""Tables as Airflow assets: one name and one URI per table, `fluss://cluster/database/table`.

The assets of a task and its connection must be of the same cluster; the checks for that are here.
Airflow calls these functions while it parses DAGs, so the module imports nothing heavy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote

from airflow.sdk import Asset

from fluss_orchestrate.airflow.version_compat import conf
from fluss_orchestrate.deprecated import accepts_old_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import AssetWatcher

    from fluss_orchestrate.airflow.flows import Node


def fluss_assets(task: Any) -> list[str]:
    """Return the URIs of the tables among a task's inlets and outlets."""
    from airflow.sdk import Asset

    assets = [a for a in (*task.inlets, *task.outlets) if isinstance(a, Asset)]
    return [asset.uri for asset in assets if asset.uri.startswith(f"{SCHEME}://")]


def check_assets(uris: Sequence[str], nodes: Sequence[Node]) -> None:
    """Check that each asset of a table that the task uses has the alias of its connection.

    Raises:
        ConfigError: if an asset names the table in another cluster; then its events would carry
            receipts of a cluster that is not the asset's.
    """
    used = {(node.namespace.removeprefix(f"{SCHEME}://"), node.name) for node in nodes}
    for uri in uris:
        alias, table = split_uri(uri)
        others = sorted(other for other, name in used if name == table)
        if others and alias not in others:
            raise _mismatch(f"the asset {uri}", alias, table, others[0])


def check_alias(what: str, alias: str, table: str, found: str) -> None:
    """Check that an alias is the one that the connection has.

    Raises:
        ConfigError: if it is another.
    """
    if alias != found:
        raise _mismatch(what, alias, table, found)


def _mismatch(what: str, alias: str, table: str, found: str) -> Exception:
    from fluss_client.errors import ConfigError

    return ConfigError(
        f"{what} is of cluster '{alias}', but the connection's cluster is '{found}': write "
        f"fluss_table_asset('{table}', cluster_alias='{found}'), set [fluss] cluster_alias, or set "
        "cluster_alias in the connection's extras (never change that of a cluster that "
        "checkpoints know)"
    )


SCHEME = "fluss"
CONFIG_SECTION = "fluss"
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


@accepts_old_parameters("fluss_table_asset")
def fluss_table_asset(
    table: str,
    *,
    cluster_alias: str | None = None,
    extra: dict[str, Any] | None = None,
    watchers: Sequence[AssetWatcher] = (),
) -> Asset:
    """Return the asset of a table, the same wherever it is named.

    Name and URI are both made of the alias and the table, because Airflow refuses a second name
    for one URI. A task or watcher whose connection has another alias fails.

    Args:
        table: The table, as `database.table`.
        cluster_alias: The alias that the connection has; by default `[fluss] cluster_alias`.
        extra: The extra of the asset.
        watchers: Watchers, for example with `FlussOffsetTrigger`.

    Raises:
        ValueError: If the table or the alias has not that form.
    """
    uri = asset_uri(table, cluster_alias)
    for watcher in watchers:
        _expect_cluster(watcher.trigger, split_uri(uri)[0])
    return Asset(name=uri, uri=uri, extra=extra or {}, watchers=list(watchers))


def _expect_cluster(trigger: Any, alias: str) -> None:
    """Let the trigger of a watcher check that its connection is of the asset's cluster."""
    from fluss_orchestrate.airflow.triggers.watching import FlussWatchTrigger

    named = getattr(trigger, "trigger", trigger)  # Airflow's MessageQueueTrigger has ours in it
    if isinstance(named, FlussWatchTrigger) and named.cluster_alias is None:
        named.cluster_alias = alias


def asset_uri(table: str, cluster: str | None = None) -> str:
    """`fluss://cluster/database/table`."""
    database, dot, name = table.partition(".")
    if not dot or not database or not name:
        raise ValueError(f"'{table}' is no table: write database.table")
    alias = cluster or conf.get(CONFIG_SECTION, "cluster_alias", fallback="default")
    check_alias_name(alias)
    return f"{SCHEME}://{alias}/{quote(database)}/{quote(name)}"


def create_asset(
    *, uri: str | None = None, table: str = "", cluster: str | None = None, **more: Any
) -> Asset:
    """Return the asset that Airflow's hook lineage reports."""
    found = uri or asset_uri(table, cluster)
    return Asset(name=found, uri=found, **more)


def normalise_uri(parts: SplitResult) -> SplitResult:
    """Return the URI in its one form.

    Raises:
        ValueError: If it names no table.
    """
    names = [unquote(name) for name in parts.path.strip("/").split("/")]
    if len(names) != 2 or not all(names) or parts.query:
        raise ValueError("a Fluss table's URI is fluss://cluster/database/table")
    check_alias_name(parts.netloc)
    path = "/" + "/".join(quote(name) for name in names)
    return parts._replace(scheme=SCHEME, path=path)


def to_openlineage(asset: Asset, lineage_context: Any) -> Any:
    """Return the asset as a dataset of OpenLineage: namespace is the cluster, name the table."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    cluster, table = split_uri(asset.uri)
    return Dataset(namespace=f"{SCHEME}://{cluster}", name=table)


def split_uri(uri: str) -> tuple[str, str]:
    """Return the alias and `database.table` of a table's URI."""
    scheme, _, rest = uri.partition("://")
    cluster, _, path = rest.partition("/")
    names = [unquote(name) for name in path.split("/")]
    if scheme != SCHEME or not cluster or len(names) != 2 or not all(names):
        raise ValueError(f"'{uri}' is no table URI: write fluss://cluster/database/table")
    return cluster, ".".join(names)


def check_alias_name(alias: str) -> None:
    """Check the form of a cluster alias.

    Raises:
        ValueError: If it has other characters, or none.
    """
    if not _ALIAS.match(alias):
        raise ValueError(
            f"'{alias}' is no cluster alias: use letters, digits, '.', '_' and '-', beginning "
            "with a letter or digit"
        )
