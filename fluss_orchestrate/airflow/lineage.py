"""Flows as OpenLineage: datasets with schemas and counts, and the receipt as a run facet.

Needs the OpenLineage client; imported only when Airflow's listener asks.
"""

from __future__ import annotations

from typing import Any

import attr
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.generated.base import RunFacet
from openlineage.client.generated.column_lineage_dataset import (
    ColumnLineageDatasetFacet,
    Fields,
    InputField,
    Transformation,
)
from openlineage.client.generated.output_statistics_output_dataset import (
    OutputStatisticsOutputDatasetFacet,
)
from openlineage.client.generated.schema_dataset import (
    SchemaDatasetFacet,
    SchemaDatasetFacetFields,
)

from fluss_orchestrate.airflow.flows import Flow, Node
from fluss_orchestrate.core.receipts import Receipt

FACET = "fluss_receipt"
RANGES_MAX = 1_000
"""Ranges that a facet shows; a receipt may have more."""


@attr.define
class FlussReceiptRunFacet(RunFacet):
    """What a run did, by its receipt: offsets, rows, and the lake's snapshot."""

    kind: str
    table: str
    table_id: int
    run_key: str
    rows: int
    bytes: int
    plan_id: str | None = None
    snapshot_id: int | None = None
    ranges: list[dict[str, Any]] = attr.field(factory=list)


def lineage_of(flow: Flow | None) -> OperatorLineage[Any, Any]:
    """Return the flow as OpenLineage facets; nothing if the task moves nothing."""
    if flow is None:
        return OperatorLineage()
    return OperatorLineage(
        inputs=[_input(node) for node in flow.inputs],
        outputs=[_output(node, flow) for node in flow.outputs],
        run_facets={} if flow.receipt is None else {FACET: _receipt(flow.receipt)},
    )


def _schema(node: Node) -> dict[str, Any]:
    if not node.fields:
        return {}
    fields = [SchemaDatasetFacetFields(name=name, type=kind) for name, kind in node.fields]
    return {"schema": SchemaDatasetFacet(fields=fields)}


def _input(node: Node) -> InputDataset:
    return InputDataset(namespace=node.namespace, name=node.name, facets=_schema(node))


def _output(node: Node, flow: Flow) -> OutputDataset:
    facets = _schema(node)
    if flow.columns and flow.inputs:
        copied = {name: _copied(flow.inputs, source) for name, source in flow.columns}
        facets["columnLineage"] = ColumnLineageDatasetFacet(fields=copied)
    counts: dict[str, Any] = {}
    if flow.receipt is not None:
        counts["outputStatistics"] = OutputStatisticsOutputDatasetFacet(
            rowCount=max(0, flow.receipt.rows), size=max(0, flow.receipt.bytes)
        )
    return OutputDataset(
        namespace=node.namespace, name=node.name, facets=facets, outputFacets=counts
    )


def _copied(inputs: tuple[Node, ...], column: str) -> Fields:
    how = [Transformation(type="DIRECT", subtype="IDENTITY")]
    return Fields([InputField(node.namespace, node.name, column, how) for node in inputs])


def _receipt(receipt: Receipt) -> FlussReceiptRunFacet:
    return FlussReceiptRunFacet(
        kind=receipt.kind,
        table=receipt.table.uri,
        table_id=receipt.table.table_id,
        run_key=receipt.run_key,
        rows=receipt.rows,
        bytes=receipt.bytes,
        plan_id=receipt.plan_id,
        snapshot_id=receipt.snapshot_id,
        ranges=[
            {"partition": r.partition, "bucket": r.bucket, "start": r.start, "stop": r.stop}
            for r in receipt.ranges[:RANGES_MAX]
        ],
    )
