"""Contracts as arguments of an operator: a target whose rows keep rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from fluss_client import FlussConnection
    from fluss_orchestrate.airflow.flows import Node
    from fluss_orchestrate.airflow.targets import Target
    from fluss_orchestrate.core.sinks.contract import ContractSink


@dataclass
class ContractTarget:
    """A target whose rows keep rules; the others stop the task, or go into a quarantine.

    Args:
        target: The target.
        rules: Conditions such as `amount >= 0`, or fields of a `ColumnRule`, such as
            `{"column": "region", "type": "STRING", "not_null": True}`.
        on_violation: `fail` or `quarantine`.
        quarantine: The target of the rows that violate a rule.
    """

    target: Target
    rules: Sequence[str | Mapping[str, Any]]
    on_violation: str = "fail"
    quarantine: Target | None = None
    template_fields: ClassVar[Sequence[str]] = ("target", "rules", "quarantine")

    def open(self, client: FlussConnection) -> ContractSink:
        """Open the sinks.

        Args:
            client: The connection that the rows are read with.
        """
        from fluss_orchestrate.core.sinks.contract import ContractSink

        quarantine = None if self.quarantine is None else self.quarantine.open(client)
        return ContractSink(self.target.open(client), self.rules, self.on_violation, quarantine)

    def node(self, alias: str) -> Node:
        """Return the dataset of the target for lineage.

        Args:
            alias: The alias of the cluster that is read.
        """
        return self.target.node(alias)
