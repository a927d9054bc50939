"""The figures of an overview in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Mapping

from fluss_orchestrate.console.metrics import METRICS, Metric, measured
from fluss_orchestrate.core.overview.figures import Overview

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(overview: Overview | None, problem: str = "") -> str:
    """Return the figures in Prometheus' text format.

    Args:
        overview: The newest overview; None before the first.
        problem: Why the last pass failed; empty if it did not.
    """
    lines: dict[Metric, list[str]] = {metric: [] for metric in METRICS}
    for metric, labels, value in measured(overview, problem):
        lines[metric].append(f"{metric.prometheus}{_labels(labels)} {value:.10g}\n")
    parts = []
    for metric, found in lines.items():
        if found:
            name = metric.prometheus
            parts.append(f"# HELP {name} {metric.help}\n# TYPE {name} gauge\n")
            parts += found
    return "".join(parts)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
