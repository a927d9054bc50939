"""Charts as SVG text, so that a report needs no network and no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 240
LEFT, BOTTOM, TOP, RIGHT = 70, 34, 14, 12
COLOURS = ("#2f6fab", "#d9822b", "#3f9142", "#8e4b9e")

Points = Sequence[tuple[float, float]]


def grouped_bars(title: str, groups: Mapping[str, Mapping[str, int]]) -> str:
    """Bars side by side for each group."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    highest = max((value for group in groups.values() for value in group.values()), default=1)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(groups))
    width = step * 0.8 / max(1, len(names))
    parts = [_axis(highest)]
    for number, (group, values) in enumerate(groups.items()):
        left = LEFT + number * step + step * 0.1
        for place, name in enumerate(names):
            top = _y(values.get(name, 0), highest)
            parts.append(
                f'<rect x="{left + place * width:.1f}" y="{top:.1f}" width="{width - 2:.1f}" '
                f'height="{HEIGHT - BOTTOM - top:.1f}" fill="{COLOURS[place]}">'
                f"<title>{escape(name)}: {values.get(name, 0):,}</title></rect>"
            )
        parts.append(_label(left + step * 0.4, HEIGHT - 14, group, "middle"))
    return _figure(title, parts, names)


def lines(title: str, series: Mapping[str, Points], x_unit: str = "s") -> str:
    """One line for each series."""
    points = [point for many in series.values() for point in many]
    far = max((x for x, _ in points), default=1) or 1
    highest = max((y for _, y in points), default=1) or 1
    parts = [_axis(highest)]
    for number, many in enumerate(series.values()):
        path = " ".join(f"{_x(x, far):.1f},{_y(y, highest):.1f}" for x, y in many)
        colour = COLOURS[number]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{_x(x, far):.1f}" cy="{_y(y, highest):.1f}" r="3" fill="{colour}">'
            f"<title>{y:,.0f} at {x:.0f} {x_unit}</title></circle>"
            for x, y in many
        ]
    parts.append(_label(WIDTH - RIGHT, HEIGHT - 14, f"{far:.0f} {x_unit}", "end"))
    return _figure(title, parts, list(series))


def long_bars(title: str, values: Mapping[str, float], unit: str = "s") -> str:
    """One bar below the other, for names that need room."""
    longest = max(values.values(), default=1) or 1
    row, name_width = 24, 250
    height = row * len(values) + 8
    parts = []
    for number, (name, value) in enumerate(values.items()):
        y = 4 + number * row
        length = max(1.0, (WIDTH - name_width - 70) * value / longest)
        parts.append(_label(name_width - 8, y + 15, name, "end"))
        parts.append(
            f'<rect x="{name_width}" y="{y + 3}" width="{length:.1f}" height="{row - 8}" '
            f'fill="{COLOURS[0]}"/>'
        )
        parts.append(_label(name_width + length + 6, y + 15, f"{value:.1f} {unit}", "start"))
    return _figure(title, parts, [], height)


def _figure(title: str, parts: Sequence[str], names: Sequence[str], height: int = HEIGHT) -> str:
    legend = "".join(
        f'<span><i style="background:{COLOURS[number]}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg><p class='legend'>{legend}</p></figure>"
    )


def _axis(highest: float) -> str:
    marks = []
    for share in (0, 0.5, 1):
        y = _y(highest * share, highest)
        marks.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        marks.append(_label(LEFT - 6, y + 4, f"{highest * share:,.0f}", "end"))
    return "".join(marks)


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _x(value: float, far: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * value / far


def _y(value: float, highest: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / highest
