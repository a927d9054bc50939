"""Counters of one cluster client, cheap enough to be always on, and a trace hook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class CallStats:
    """Count, errors and duration of one kind of call."""

    count: int = 0
    errors: int = 0
    seconds_total: float = 0.0
    seconds_max: float = 0.0


TraceHook = Callable[[str, str, float, str | None], None]
"""`hook(call, server, seconds, error or None)`, called on the I/O loop after every request."""


@dataclass(slots=True)
class Metrics:
    """The counters of one cluster client."""

    calls: dict[str, CallStats] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    trace: TraceHook | None = None

    def count(self, name: str, amount: float = 1) -> None:
        """Add to a counter."""
        self.counters[name] = self.counters.get(name, 0) + amount

    def record(self, call: str, server: str, seconds: float, error: str | None) -> None:
        """Record one finished request."""
        stats = self.calls.get(call)
        if stats is None:
            stats = self.calls[call] = CallStats()
        stats.count += 1
        stats.seconds_total += seconds
        stats.seconds_max = max(stats.seconds_max, seconds)
        if error is not None:
            stats.errors += 1
        if self.trace is not None:
            self.trace(call, server, seconds, error)

    def snapshot(self) -> dict[str, float]:
        """Return all counters by dotted names."""
        figures = dict(self.counters)
        for call, stats in self.calls.items():
            name = call.lower()
            figures[f"requests.{name}.count"] = stats.count
            figures[f"requests.{name}.errors"] = stats.errors
            figures[f"requests.{name}.seconds_total"] = stats.seconds_total
            figures[f"requests.{name}.seconds_max"] = stats.seconds_max
        figures["requests.count"] = sum(s.count for s in self.calls.values())
        figures["requests.errors"] = sum(s.errors for s in self.calls.values())
        return figures
