"""Where rows came from and went to, gathered while a task runs, for OpenLineage.

Airflow asks for lineage when the task is over, in a process that it forks for that: no client can
be used there, so everything is looked up before.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from fluss_client import FlussConnection
    from fluss_orchestrate.core.receipts import Receipt


@dataclass(frozen=True)
class Node:
    """A dataset by OpenLineage's names, with its columns where they are known."""

    namespace: str
    name: str
    fields: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Flow:
    """What a task moved. With `same_columns`, each output column is the input's of that name."""

    receipt: Receipt
    inputs: tuple[Node, ...] = ()
    outputs: tuple[Node, ...] = ()
    same_columns: bool = False


def table_node(client: FlussConnection, table: str) -> Node:
    """A Fluss table: the cluster's alias is the namespace."""
    from fluss_client.model.table import TablePath
    from fluss_client.runtime import runtime

    path = TablePath.parse(table)
    info = runtime().call(client.core.backend.get_table_info(path))
    fields = tuple((column.name, str(column.type)) for column in info.schema.columns)
    return Node(f"fluss://{client.config.resolved_alias()}", str(path), fields)


def path_node(path: str) -> Node:
    """Files: on this machine, or in a store that its URI names."""
    parts = urlsplit(path)
    if not parts.scheme or parts.scheme == "file":
        return Node("file", os.path.abspath(parts.path))
    host = parts.netloc.rpartition("@")[2]
    return Node(f"{parts.scheme}://{host}", parts.path.strip("/") or "/")


def url_node(url: str, name: str) -> Node:
    """A table behind an address, without the login that may be in it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    scheme = parts.scheme.partition("+")[0]
    return Node(f"{scheme}://{host}{parts.path if not host else ''}", name)
