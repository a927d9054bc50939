"""How figures are written on pages: numbers, sizes, durations and times."""

from __future__ import annotations

from datetime import UTC, datetime

from fluss_orchestrate.core.checkpoints.events import IntervalName, now_ms

NONE = "–"  # noqa: RUF001 (typography)
"""For what does not apply. What is not known is written as `unknown`."""
_STEPS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def number(value: float | None) -> str:
    """Return a whole number with separators of thousands."""
    return NONE if value is None else f"{value:,.0f}"


def compact(value: float | None) -> str:
    """Return a number with three digits, such as 1.25 M."""
    if value is None:
        return NONE
    size = float(value)
    for unit in ("", " k", " M", " G"):
        if abs(size) < 1000:
            return f"{size:.0f}{unit}" if not unit or abs(size) >= 100 else f"{size:.3g}{unit}"
        size /= 1000
    return f"{size:,.3g} T"


def rate(per_s: float | None) -> str:
    """Return a rate in offsets per second."""
    if per_s is None:
        return NONE
    return "0/s" if per_s == 0 else f"{compact(per_s) if per_s >= 10 else f'{per_s:.2g}'}/s"


def size(value: float | None) -> str:
    """Return a number of bytes."""
    if value is None:
        return NONE
    left = float(value)
    for unit in _SIZES:
        if left < 1000 or unit == _SIZES[-1]:
            return f"{left:.0f} {unit}" if unit == "B" else f"{left:.3g} {unit}"
        left /= 1000
    raise AssertionError


def duration(ms: float | None) -> str:
    """Return a duration with at most two units: `2 h 5 min`, `40 s`."""
    if ms is None:
        return NONE
    left = round(abs(ms) / 1000)
    parts: list[str] = []
    for unit, length in _STEPS:
        if left >= length or (unit == "s" and not parts):
            parts.append(f"{left // length} {unit}")
            left %= length
            if len(parts) == 2:
                break
        elif parts:
            break
    return " ".join(part for part in parts if not part.startswith("0 ") or len(parts) == 1)


def took(ms: float | None) -> str:
    """Return how long something took; short times in milliseconds."""
    return f"{ms:.0f} ms" if ms is not None and ms < 1000 else duration(ms)


def counted(value: int, noun: str) -> str:
    """Return a number with its noun: `1 range`, `2 ranges`."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def ago(at_ms: int | None) -> str:
    """Return how long ago a time was."""
    return NONE if at_ms is None else duration(max(0, now_ms() - at_ms))


def until(at_ms: int | None) -> str:
    """Return how long it is until a time; `now` if it has passed."""
    if at_ms is None:
        return NONE
    left = at_ms - now_ms()
    return duration(left) if left > 0 else "now"


def moment(at_ms: int | None) -> str:
    """Return a time in UTC."""
    if at_ms is None or at_ms < 0:
        return NONE
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso(at_ms: int | None) -> str:
    """Return a time for machines."""
    return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def checkpoint(name: str) -> str:
    """Return the name of a checkpoint for people: that of an interval with its times."""
    parts = IntervalName.of(name)
    if parts is None:
        return name
    return f"{parts.scan}, {span(parts.since_ms, parts.until_ms)}"


def span(since_ms: int, until_ms: int) -> str:
    """Return two times, without what the second one has in common with the first."""
    since, until = moment(since_ms), moment(until_ms)
    same_day = since[:10] == until[:10]
    if since.endswith(":00") and until.endswith(":00"):
        since, until = since[:-3], until[:-3]
    return f"{since} to {until[11:] if same_day else until}"
