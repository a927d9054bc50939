"""Figures for people who watch: one hook gets them all, whichever shell runs the work.

| name | what | of |
|---|---|---|
| `fluss.rows`, `fluss.bytes` | added by a piece of work | each receipt |
| `fluss.duration` | seconds that it took | each receipt |
| `fluss.checkpoint.lag` | unread offsets | `checkpoint_lag` |
| `fluss.checkpoint.age` | seconds since the oldest unread batch | `checkpoint_lag` |
| `fluss.lake.lag` | offsets that are not in the lake | `lake_status` |
| `fluss.lake.age` | seconds since the oldest row that is not | `lake_status` |

Attributes: `table` (its URI), `kind` (as in receipts), `checkpoint`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.core.receipts import Receipt

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

log = logging.getLogger(__name__)

MetricsHook = Callable[[str, float, Mapping[str, str]], None]
"""Called with a name, a value and attributes; it must be quick and may be on any thread."""

COUNTERS = ("fluss.rows", "fluss.bytes")
HISTOGRAMS = ("fluss.duration",)
GAUGES = ("fluss.checkpoint.lag", "fluss.checkpoint.age", "fluss.lake.lag", "fluss.lake.age")
UNITS = {"fluss.rows": "{row}", "fluss.bytes": "By", "fluss.duration": "s"} | {
    name: "s" if name.endswith(".age") else "{offset}" for name in GAUGES
}

_hook: MetricsHook | None = None


def set_metrics_hook(hook: MetricsHook | None) -> None:
    """Give all figures of this process to `hook`; None stops it."""
    global _hook
    _hook = hook


def record(name: str, value: float, **attributes: str) -> None:
    """Give one figure to the hook. A hook that fails is logged and disturbs nothing."""
    if _hook is None:
        return
    try:
        _hook(name, value, attributes)
    except Exception:
        log.warning("the metrics hook failed for %s", name, exc_info=True)


def record_receipt(receipt: Receipt) -> Receipt:
    """Give the figures of a receipt to the hook; the receipt itself."""
    attributes = {"table": receipt.table.uri, "kind": receipt.kind}
    if "name" in receipt.details:
        attributes["checkpoint"] = str(receipt.details["name"])
    record("fluss.rows", receipt.rows, **attributes)
    record("fluss.bytes", receipt.bytes, **attributes)
    if 0 <= receipt.started_ms <= receipt.finished_ms:
        seconds = (receipt.finished_ms - receipt.started_ms) / 1000
        record("fluss.duration", seconds, **attributes)
    return receipt


def opentelemetry_hook(meter: Meter | None = None) -> MetricsHook:
    """Return a hook that records the metrics with OpenTelemetry.

    Use it with `set_metrics_hook(opentelemetry_hook())`.

    Args:
        meter: The meter; None for that of the process.
    """
    try:
        from opentelemetry.metrics import get_meter
    except ImportError:
        raise ImportError(
            "opentelemetry_hook needs the package opentelemetry-api; install it"
        ) from None
    using = meter or get_meter("fluss_orchestrate")
    adds: dict[str, Callable[..., Any]] = {}
    for name in COUNTERS:
        adds[name] = using.create_counter(name, UNITS[name]).add
    for name in HISTOGRAMS:
        adds[name] = using.create_histogram(name, UNITS[name]).record
    for name in GAUGES:
        adds[name] = using.create_gauge(name, UNITS[name]).set

    def hook(name: str, value: float, attributes: Mapping[str, str]) -> None:
        adds[name](value, dict(attributes))

    return hook
