"""Charts as SVG: lines over time, bars, and the small lines beside a number.

Colours are classes of the style sheet, so that dark mode and a strict content security policy work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from fluss_orchestrate.console import formats

Points = Sequence[tuple[int, float | None]]
"""Times in milliseconds with a value; None is not known, and leaves a gap."""
WIDTH, HEIGHT = 640, 170
LEFT, RIGHT, TOP, BOTTOM = 64, 10, 10, 24
SPARK_WIDTH, SPARK_HEIGHT = 84, 20
SPARK_POINTS_MAX = 60
LINES_MAX = 4
NO_HISTORY = "The line begins when this console has run for two minutes."
_LINE = Markup('<polyline class="line c{}" points="{}"><title>{}</title></polyline>')
_KEY = Markup(
    '<span><svg class="key" width="10" height="10" aria-hidden="true">'
    '<rect class="bar c{}" width="10" height="10" rx="2"/></svg>{}</span>'
)


def spark(points: Points) -> Markup:
    """Return a small line without axes; empty with fewer than two points. It is decoration."""
    known = [(at, value) for at, value in points if value is not None]
    known = known[:: max(1, len(known) // SPARK_POINTS_MAX)]
    if len(known) < 2:
        return Markup("")
    first, last = known[0][0], known[-1][0]
    highest = max(value for _, value in known) or 1
    path = " ".join(
        f"{(at - first) / max(1, last - first) * SPARK_WIDTH:.1f},"
        f"{SPARK_HEIGHT - 2 - value / highest * (SPARK_HEIGHT - 4):.1f}"
        for at, value in known
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" width="{w}" height="{h}" aria-hidden="true">'
        '<polyline points="{path}"/></svg>'
    ).format(w=SPARK_WIDTH, h=SPARK_HEIGHT, path=path)


def lines(
    title: str,
    series: Sequence[tuple[str, Points]],
    text: Callable[[float | None], str] = formats.compact,
) -> Markup:
    """Return a chart of lines over time.

    Args:
        title: What it shows.
        series: The name and the points of each line.
        text: Writes a value of the axis.
    """
    known = [p for _, points in series for p in points if p[1] is not None]
    if len(known) < 2:
        return Markup(
            '<figure class="chart"><figcaption>{}</figcaption><p class="empty">{}</p></figure>'
        ).format(title, NO_HISTORY)
    first, last = min(at for at, _ in known), max(at for at, _ in known)
    highest = max(value for _, value in known if value is not None) or 1
    parts = [_grid(first, last, highest, text)]
    for place, (name, points) in enumerate(series[:LINES_MAX]):
        for run in _runs(points):
            path = " ".join(
                f"{_x(at, first, last):.1f},{_y(value, highest):.1f}" for at, value in run
            )
            parts.append(_LINE.format(place, path, name))
    newest = "; ".join(f"{name} {_newest(points, text)}" for name, points in series)
    return _figure(title, Markup("").join(parts), f"{title}: {newest}", [n for n, _ in series])


def bars(title: str, values: Sequence[tuple[int, float, str]]) -> Markup:
    """Return a chart of bars in order.

    Args:
        title: What it shows.
        values: The time, the value and the text of each bar.
    """
    if not values:
        return Markup("")
    highest = max(value for _, value, _ in values) or 1
    step = (WIDTH - LEFT - RIGHT) / max(12, len(values))
    parts = [_grid(values[0][0], values[-1][0], highest, formats.compact)]
    for place, (_, value, said) in enumerate(values):
        top = _y(value, highest)
        parts.append(
            Markup(
                '<rect class="bar c0" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                "<title>{}</title></rect>"
            ).format(
                LEFT + place * step + 1,
                min(top, HEIGHT - BOTTOM - 1),
                max(1.0, step - 2),
                max(1.0, HEIGHT - BOTTOM - top),
                said,
            )
        )
    return _figure(title, Markup("").join(parts), f"{title}: the last is {values[-1][2]}", [])


def meter(share: float) -> Markup:
    """Return a small bar that is filled to a share between 0 and 1. It is decoration."""
    return Markup(
        '<svg class="meter" viewBox="0 0 60 8" width="60" height="8" aria-hidden="true">'
        '<rect class="rest" width="60" height="8" rx="2"/>'
        '<rect class="full" width="{:.1f}" height="8" rx="2"/></svg>'
    ).format(60 * min(1.0, max(0.0, share)))


def _runs(points: Points) -> list[list[tuple[int, float]]]:
    """Return the parts of a line between the gaps."""
    runs: list[list[tuple[int, float]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if len(run) > 1]


def _newest(points: Points, text: Callable[[float | None], str]) -> str:
    known = [value for _, value in points if value is not None]
    return text(known[-1]) if known else "unknown"


def _grid(first: int, last: int, highest: float, text: Callable[[float | None], str]) -> Markup:
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = _y(highest * share, highest)
        parts.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
                '<text x="{}" y="{:.1f}" text-anchor="end">{}</text>'
            ).format(LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, text(highest * share))
        )
    day = last - first > 20 * 3_600_000
    for at, anchor, x in ((first, "start", LEFT), (last, "end", WIDTH - RIGHT)):
        label = formats.moment(at)[5:16] if day else formats.moment(at)[11:19]
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(
                x, HEIGHT - 6, anchor, label
            )
        )
    return Markup("").join(parts)


def _figure(title: str, body: Markup, label: str, names: Sequence[str]) -> Markup:
    legend = Markup("")
    if len(names) > 1:
        keys = [_KEY.format(place, name) for place, name in enumerate(names)]
        legend = Markup('<span class="legend">{}</span>').format(Markup("").join(keys))
    return Markup(
        '<figure class="chart"><figcaption>{}{}</figcaption>'
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg></figure>'
    ).format(title, legend, WIDTH, HEIGHT, escape(label), body)


def _x(at: int, first: int, last: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (at - first) / max(1, last - first)


def _y(value: float, highest: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / highest
