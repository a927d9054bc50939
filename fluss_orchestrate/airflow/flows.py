"""The sources and the targets of rows, for OpenLineage.

Airflow asks for lineage in a process that it forks for that, where no client can be used. At the
start of a task, and after a failure, the lineage has the names in the task's arguments; the rest
is looked up while the task runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fluss_orchestrate.core.sinks.registry import file_node

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
    """What a task moves, or has moved when there is a receipt.

    `columns` has an output's columns with those of the inputs that they are copies of, as far as
    that is known.
    """

    inputs: tuple[Node, ...] = ()
    outputs: tuple[Node, ...] = ()
    receipt: Receipt | None = None
    columns: tuple[tuple[str, str], ...] = ()


def copies(node: Node) -> tuple[tuple[str, str], ...]:
    """Return every column as a copy of one with the same name."""
    return tuple((name, name) for name, _ in node.fields)


def named_table(alias: str, table: str) -> Node:
    """Return the node of a Fluss table by its name; the alias of the cluster is the namespace."""
    return Node(f"fluss://{alias}", table)


def table_node(client: FlussConnection, table: str) -> Node:
    """Return the node of a Fluss table with its columns."""
    from fluss_client.engine import table_info

    info = table_info(client, table)
    fields = tuple((column.name, str(column.type)) for column in info.schema.columns)
    return replace(named_table(client.config.resolved_alias(), str(info.table_path)), fields=fields)


def path_node(path: str) -> Node:
    """Return the node of files: on this machine, or in the storage of a URI."""
    return Node(*file_node(path))
