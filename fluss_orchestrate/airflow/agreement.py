"""A task's assets and its connection must mean the same cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.assets import SCHEME, split_uri

if TYPE_CHECKING:
    from fluss_orchestrate.airflow.flows import Node


def fluss_assets(task: Any) -> list[str]:
    """The URIs of the tables among a task's inlets and outlets."""
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
        f"fluss_table_asset('{table}', cluster='{found}'), set [fluss] cluster_alias, or set "
        "cluster_alias in the connection's extras (never change that of a cluster that "
        "checkpoints know)"
    )
