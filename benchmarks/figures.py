"""Figures for people."""

from __future__ import annotations

_STEPS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_PLAIN_UNITS = ("ms", "s", "%", "MB", "KB")


def shown(value: float, unit: str) -> str:
    """A figure with three digits that count and its unit: `1.23 MB/s`, `17.0 ms`."""
    if unit not in _PLAIN_UNITS:
        for limit, prefix in _STEPS:
            if abs(value) >= limit:
                space = "" if unit.startswith("B") else " "
                return f"{_digits(value / limit)} {prefix}{space}{unit}"
    return f"{_digits(value)} {unit}".rstrip()


def times(ratio: float) -> str:
    """A ratio: `2.20x`, `1,234x`."""
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.2f}x"


def _digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
