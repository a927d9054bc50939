"""Metrics: Prometheus and OpenTelemetry have the same figures, and the alerts of the docs fire."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader

from fluss_client.errors import ConfigError
from fluss_orchestrate.console import opentelemetry, prometheus
from fluss_orchestrate.console.metrics import METRICS
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.overview.figures import (
    CheckpointFigures,
    Expiry,
    IntervalScanFigures,
    LakeFigures,
    Overview,
    PendingFigures,
    TableFigures,
)
from fluss_orchestrate.core.overview.gathering import Gathered
from fluss_orchestrate.core.overview.monitor import Look

HOUR_S = 3_600
HOUR_MS = HOUR_S * 1000
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "console.md"
Sample = tuple[str, frozenset[tuple[str, str]]]


def overview(left_s: float = 5 * HOUR_S, **changed: Any) -> Overview:
    """An overview in which every metric has a value; retention comes in `left_s`."""
    now = now_ms()
    table = TableFigures(
        "shop.events",
        "log",
        buckets=2,
        offsets=340,
        rows=340,
        bytes=6_690,
        retention_ms=HOUR_MS,
        lake=LakeFigures(7, 40, now - 60_000),
    )
    pending = PendingFigures("id", "run 1", "", now - 2 * HOUR_MS, 40, 1)
    one = CheckpointFigures(
        'to "files"\\',
        "shop.events",
        unread=40,
        oldest_ms=now - 60_000,
        expiry=Expiry.KNOWN,
        expires_ms=now + round(left_s * 1000),
        pending=pending,
    )
    scan = IntervalScanFigures("hourly", "shop.events", until_ms=now - HOUR_MS, missing=2)
    made = Overview(now, 25, "shop", "a:1", 1, (table,), (one,), (scan,))
    return replace(made, **changed)


def look(found: Overview, problem: str = "") -> Look:
    return Look(Gathered(found), problem)


LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def scraped(text: str) -> dict[Sample, float]:
    """The samples of an exposition, as a scraper reads them."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        series, _, value = line.rpartition(" ")
        name, _, labels = series.partition("{")
        pairs = frozenset(
            (key, re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text))
            for key, text in LABEL.findall(labels)
        )
        found[name, pairs] = float(value)
    return found


def exported(metrics: Any) -> dict[Sample, float]:
    """The points of OpenTelemetry, under their names of Prometheus."""
    by_name = {metric.name: metric.prometheus for metric in METRICS}
    return {
        (by_name[metric.name], frozenset((str(k), str(v)) for k, v in point.attributes.items())): (
            float(point.value)
        )
        for metric in metrics
        for point in metric.data.data_points
    }


def close_to(one: dict[Sample, float], other: dict[Sample, float]) -> bool:
    """Ages grow by the time between the two questions."""
    return one.keys() == other.keys() and all(
        math.isclose(value, other[key], abs_tol=5.0) for key, value in one.items()
    )


def test_opentelemetry_and_prometheus_have_the_same_figures() -> None:
    shown = look(overview())
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    opentelemetry.observe(lambda: shown, provider.get_meter(opentelemetry.SCOPE))
    data = reader.get_metrics_data()
    assert data is not None
    [scope] = data.resource_metrics[0].scope_metrics
    found = exported(scope.metrics)
    said = scraped(prometheus.exposition(overview()))
    assert {name for name, _ in said} == {metric.prometheus for metric in METRICS}
    assert close_to(found, said)
    units = {metric.name: metric.unit for metric in scope.metrics}
    assert units == {metric.name: metric.unit for metric in METRICS}
    provider.shutdown()


class _Collector(BaseHTTPRequestHandler):
    """Takes what an OTLP exporter sends."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.sent.append((self.path, body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), _Collector) as server:
        server.sent = []  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def points_of(sent: list[tuple[str, bytes]]) -> dict[str, set[float]]:
    """The values that an exporter has sent, by metric."""
    found: dict[str, set[float]] = {}
    for _, body in sent:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    values = {point.as_double for point in metric.gauge.data_points}
                    found.setdefault(metric.name, set()).update(values)
    return found


def test_the_figures_leave_by_otlp(collector: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"http://127.0.0.1:{collector.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    made = opentelemetry.provider()
    assert isinstance(made, MeterProvider)
    opentelemetry.observe(lambda: look(overview()), made.get_meter(opentelemetry.SCOPE))
    made.shutdown()  # which exports
    sent = collector.sent  # type: ignore[attr-defined]
    assert {path for path, _ in sent} == {"/v1/metrics"}
    found = points_of(sent)
    assert set(found) == {metric.name for metric in METRICS}
    assert found["fluss.checkpoint.lag"] == {40.0}
    assert b"fluss-orchestrate" in sent[0][1]


def test_an_sdk_that_is_set_up_is_used_and_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    monkeypatch.setattr("opentelemetry.metrics.get_meter_provider", lambda: mine)
    assert opentelemetry.provider() is mine
    mine.shutdown()
    monkeypatch.undo()
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "-5")
    with pytest.raises(ConfigError, match="variables of OpenTelemetry"):
        opentelemetry.provider()


def test_before_the_first_pass_and_after_a_failed_one_only_what_is_known_is_said() -> None:
    assert scraped(prometheus.exposition(None)) == {("fluss_up", frozenset()): 0.0}
    failed = scraped(prometheus.exposition(overview(), "nobody answers"))
    assert failed["fluss_up", frozenset()] == 0.0
    assert ("fluss_observed_age_seconds", frozenset()) in failed


def alerts() -> dict[str, str]:
    """The expressions of the alert rules in the guide."""
    block = re.search(r"```yaml\n(groups:.*?)```", GUIDE.read_text(), re.DOTALL)
    assert block is not None
    rules = yaml.safe_load(block[1])["groups"][0]["rules"]
    return {rule["alert"]: rule["expr"] for rule in rules}


COMPARISON = re.compile(r"(\w+) (<|>|==) ([\d *]+)")


def fires(expression: str, samples: dict[Sample, float]) -> set[str]:
    """The checkpoints for which an expression holds; `cluster` where it has no checkpoint.

    The part of PromQL that the rules use: comparisons of one metric with a number, joined by `or`.
    """
    found = set()
    for part in expression.split(" or "):
        match = COMPARISON.fullmatch(part.strip())
        assert match is not None, f"the test does not know the expression {part!r}"
        limit = math.prod(int(factor) for factor in match[3].split("*"))
        known = {metric.prometheus for metric in METRICS}
        assert match[1] in known, f"there is no metric {match[1]}"
        for (name, labels), value in samples.items():
            holds = {"<": value < limit, ">": value > limit, "==": value == limit}[match[2]]
            if name == match[1] and holds:
                found.add(dict(labels).get("checkpoint", "cluster"))
    return found


def fired(shown: Overview, problem: str = "") -> dict[str, set[str]]:
    samples = scraped(prometheus.exposition(shown, problem))
    found = {name: fires(expression, samples) for name, expression in alerts().items()}
    return {name: where for name, where in found.items() if where}


def test_the_alerts_of_the_guide_fire_and_only_when_they_shall() -> None:
    calm = overview(left_s=7 * HOUR_S)
    [one] = calm.checkpoints
    calm = replace(calm, checkpoints=(replace(one, pending=None),))
    assert fired(calm) == {}
    name = one.name
    soon = {"FlussRetentionNearsUnreadRows": {name}}
    near = replace(calm, checkpoints=overview(left_s=5 * HOUR_S).checkpoints)
    assert fired(near) == {**soon, "FlussPlanPending": {name}}
    already = replace(calm.checkpoints[0], expires_ms=now_ms() - 1000)
    assert fired(replace(calm, checkpoints=(already,))) == soon
    lost = replace(calm.checkpoints[0], lost=3, expiry=Expiry.PASSED, expires_ms=None)
    assert fired(replace(calm, checkpoints=(lost,))) == {"FlussUnreadRowsLost": {name}}
    unknown = replace(calm.checkpoints[0], expires_ms=None, buckets_unknown=1)
    assert fired(replace(calm, checkpoints=(unknown,))) == {"FlussRetentionUnknown": {name}}
    read = replace(calm.checkpoints[0], unread=0, oldest_ms=None, expires_ms=None)
    assert fired(replace(calm, checkpoints=(read,))) == {}
    assert fired(calm, "nobody answers") == {"FlussNotObserved": {"cluster"}}
    old = replace(calm, observed_ms=now_ms() - 600_000)
    assert fired(old) == {"FlussNotObserved": {"cluster"}}
