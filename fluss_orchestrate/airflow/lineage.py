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
)
from openlineage.client.generated.output_statistics_output_dataset import (
    OutputStatisticsOutputDatasetFacet,
)
from openlineage.client.generated.schema_dataset import (
    SchemaDatasetFacet,
    SchemaDatasetFacetFields,
)

from fluss_orchestrate.airflow.flows import Flow, Node

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
    """The flow in OpenLineage's words; nothing when the task moved nothing."""
    if flow is None:
        return OperatorLineage()
    return OperatorLineage(
        inputs=[_input(node) for node in flow.inputs],
        outputs=[_output(node, flow) for node in flow.outputs],
        run_facets={FACET: _receipt(flow)},
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
    if flow.same_columns and flow.inputs:
        source = flow.inputs[0]
        copied = {
            name: Fields(
                inputFields=[InputField(source.namespace, source.name, name)],
                transformationType="IDENTITY",
                transformationDescription="copied",
            )
            for name, _ in node.fields
        }
        facets["columnLineage"] = ColumnLineageDatasetFacet(fields=copied)
    counts = OutputStatisticsOutputDatasetFacet(
        rowCount=max(0, flow.receipt.rows), size=max(0, flow.receipt.bytes)
    )
    return OutputDataset(
        namespace=node.namespace,
        name=node.name,
        facets=facets,
        outputFacets={"outputStatistics": counts},
    )


def _receipt(flow: Flow) -> FlussReceiptRunFacet:
    receipt = flow.receipt
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
