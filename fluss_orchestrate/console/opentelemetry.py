"""The figures of an overview as gauges of OpenTelemetry.

The gauges are asked when metrics are exported, and answer from the newest overview: an export makes
no pass over the cluster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fluss_client.errors import ConfigError
from fluss_orchestrate.console.metrics import METRICS, Metric, measured
from fluss_orchestrate.core.overview.monitor import Look

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

SCOPE = "fluss_orchestrate.console"
SERVICE = "fluss-orchestrate"
SAME_EXPORT_S = 0.5
"""The gauges of one export are asked one after the other; within this time they share an answer."""
_INSTALL = (
    "--opentelemetry needs the SDK of OpenTelemetry: pip install opentelemetry-sdk "
    "opentelemetry-exporter-otlp-proto-http"
)


def observe(look: Callable[[], Look], meter: Meter) -> None:
    """Create a gauge for every metric; each export asks them.

    Args:
        look: Returns the newest overview at once.
        meter: The meter that gets the gauges.
    """
    newest = _Newest(look)
    for metric in METRICS:
        meter.create_observable_gauge(
            metric.name, [newest.callback(metric)], metric.unit, metric.help
        )


def provider() -> MeterProvider:
    """Return the meter provider of the process, or a new one that exports by OTLP.

    The variables `OTEL_*` of OpenTelemetry say where to, how often, and under which name.

    Raises:
        ConfigError: The SDK is not installed, or a variable cannot be used.
    """
    import os

    try:
        from opentelemetry import metrics
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ImportError as error:
        raise ConfigError(_INSTALL) from error
    known = metrics.get_meter_provider()
    if isinstance(known, MeterProvider):
        # Somebody has set one up, for example `opentelemetry-instrument`.
        return known
    os.environ.setdefault("OTEL_SERVICE_NAME", SERVICE)
    try:
        return MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    except ValueError as error:
        raise ConfigError(f"the variables of OpenTelemetry cannot be used: {error}") from error


class _Newest:
    """The observations of one export."""

    def __init__(self, look: Callable[[], Look]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._made = float("-inf")
        self._found: dict[Metric, list[Observation]] = {}

    def callback(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Return what OpenTelemetry calls for a metric."""
        return lambda _: self._observations().get(metric, [])

    def _observations(self) -> dict[Metric, list[Observation]]:
        from opentelemetry.metrics import Observation

        with self._lock:
            if time.monotonic() - self._made >= SAME_EXPORT_S:
                seen = self._look()
                overview = None if seen.gathered is None else seen.gathered.overview
                found: dict[Metric, list[Observation]] = {}
                for metric, labels, value in measured(overview, seen.problem):
                    found.setdefault(metric, []).append(Observation(value, dict(labels)))
                self._found, self._made = found, time.monotonic()
            return self._found
