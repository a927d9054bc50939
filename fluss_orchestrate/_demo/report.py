"""The demo's evidence: a timeline of its steps, a count of the rows in the files, an HTML report.

The count reads the Parquet files themselves and asks neither the client nor a receipt. The report
is one file with charts as SVG, so that it opens without network and without scripts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console

from fluss_orchestrate._demo import shop
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.lake.status import lake_status


@dataclass(frozen=True, slots=True)
class Proof:
    """How often the ids that were sent are in a table."""

    where: str
    sent: int
    rows: int
    missing: int
    doubled: int

    @property
    def holds(self) -> bool:
        """Whether every row is there exactly once."""
        return self.sent == self.rows and self.missing == 0 and self.doubled == 0

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.rows:,} rows of {self.sent:,} sent, "
            f"{self.missing:,} missing, {self.doubled:,} doubled"
        )


def prove(where: str, files: list[str], column: str, sent: int) -> Proof:
    """Read the ids (0 to `sent` - 1) out of Parquet files and count each."""
    found = [pq.ParquetFile(_path(file)).read([column]).column(0) for file in files]
    ids = np.concatenate([part.to_numpy() for part in found]) if found else np.zeros(0, int)
    counts = np.bincount(ids, minlength=sent)
    missing = int((counts[:sent] == 0).sum())
    return Proof(where, sent, len(ids), missing, int((counts > 1).sum()))


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


@dataclass
class Step:
    """One thing that was done."""

    phase: str
    what: str
    started_s: float
    seconds: float = 0.0
    said: str = ""


@dataclass(frozen=True)
class Sample:
    """How far a table was at a moment: offsets of all buckets together."""

    at_s: float
    table: str
    written: int
    read: int
    in_lake: int
    lake_behind_s: float
    """How old the oldest row is that the lake lacks."""


@dataclass
class Timeline:
    """The steps so far. A terminal sees the one under way; a file gets a line when it is done."""

    console: Console
    steps: list[Step] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    """Rows by phase and table."""
    _began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def step(self, phase: str, what: str) -> Iterator[Step]:
        """Time a step, and say how it went; the block may set `said`."""
        step = Step(phase, what, time.perf_counter() - self._began)
        with self.console.status(f"[bold]{phase}[/]  {what} …"):
            yield step
        step.seconds = time.perf_counter() - self._began - step.started_s
        self.steps.append(step)
        said = f"  [dim]{step.said}[/]" if step.said else ""
        self.console.print(f"[cyan]{phase:>8}[/]  {what}{said}  [dim]{step.seconds:.1f} s[/]")

    def add_rows(self, phase: str, table: str, rows: int) -> None:
        """Count rows that arrived."""
        counts = self.rows.setdefault(phase, {})
        counts[table] = counts.get(table, 0) + rows

    def sample(self, place: shop.Shop) -> None:
        """Look how far each log table is."""
        with place.connect() as connection:
            store = FlussCheckpointStore(connection)
            for table in (shop.ORDERS, shop.LINES):
                status = lake_status(connection, table)
                head = store.head(f"{table.partition('.')[2]}-to-analytics")
                position = None if head is None else head.state.position
                self.samples.append(
                    Sample(
                        time.perf_counter() - self._began,
                        table,
                        sum(b.latest for b in status.buckets),
                        0 if position is None else sum(position.offsets.values()),
                        sum(b.lake_offset or 0 for b in status.buckets),
                        (status.lag_ms or 0) / 1000,
                    )
                )

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.perf_counter() - self._began


STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem}
.verdict{padding:.7rem 1rem;border-radius:6px;font-weight:600}
.good{background:#e3f4e4;color:#1f5c22}.bad{background:#fbe3e1;color:#8c1d13}
table{border-collapse:collapse;width:100%}th{text-align:left}
th,td{padding:.3rem .6rem;border-bottom:1px solid #ddd}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:1rem}
.charts{margin-top:1.5rem}
figure{margin:0;border:1px solid #e4e4e4;border-radius:6px;padding:.8rem}
figcaption{font-weight:600;margin-bottom:.4rem}svg{width:100%}svg text{font-size:11px;fill:#555}
.legend{margin:.3rem 0 0}.legend span{margin-right:1rem;font-size:.85rem}
.legend i{display:inline-block;width:10px;height:10px;margin-right:.35rem;border-radius:2px}
"""


def write_report(file: Path, where: str, timeline: Timeline, proofs: Sequence[Proof]) -> None:
    """Write the report."""
    holds = all(proof.holds for proof in proofs)
    verdict = "every row exactly once" if holds else "NOT every row arrived exactly once"
    body = [
        "<h1>A shop on Fluss</h1>",
        f"<p>{escape(where)}; {timeline.seconds:.0f} seconds from nothing to this page.</p>",
        f'<p class="verdict {"good" if holds else "bad"}">{verdict}</p>',
        "<h2>Counted in the files</h2>",
        _proof_table(proofs),
        f'<div class="charts">{"".join(_charts(timeline))}</div>',
        "<h2>Step by step</h2>",
        _step_table(timeline),
    ]
    file.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>A shop on Fluss: {verdict}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>",
        encoding="utf-8",
    )


def _charts(timeline: Timeline) -> list[str]:
    samples = [s for s in timeline.samples if s.table == shop.ORDERS]
    phases: dict[str, float] = {}
    for step in timeline.steps:
        phases[step.what] = phases.get(step.what, 0.0) + step.seconds
    return [
        _grouped_bars("Rows per round", timeline.rows),
        _lines(
            "Offsets of the orders over time",
            {
                "written": [(s.at_s, s.written) for s in samples],
                "read by the checkpoint": [(s.at_s, s.read) for s in samples],
                "in the lake": [(s.at_s, s.in_lake) for s in samples],
            },
        ),
        _lines(
            "Lag over time, in rows",
            {
                "checkpoint": [(s.at_s, s.written - s.read) for s in samples],
                "lake": [(s.at_s, s.written - s.in_lake) for s in samples],
            },
        ),
        _lines(
            "Lake freshness: seconds behind the log",
            {
                table.partition(".")[2]: [
                    (s.at_s, s.lake_behind_s) for s in timeline.samples if s.table == table
                ]
                for table in (shop.ORDERS, shop.LINES)
            },
        ),
        _long_bars("Where time went", phases),
    ]


def _proof_table(proofs: Sequence[Proof]) -> str:
    rows = "".join(
        f"<tr><td>{escape(p.where)}</td>"
        + "".join(f'<td class="number">{n:,}</td>' for n in (p.sent, p.rows, p.missing, p.doubled))
        + "</tr>"
        for p in proofs
    )
    heads = "".join(f'<th class="number">{h}</th>' for h in ("sent", "found", "missing", "doubled"))
    return f"<table><tr><th>table</th>{heads}</tr>{rows}</table>"


def _step_table(timeline: Timeline) -> str:
    rows = "".join(
        f"<tr><td>{escape(s.phase)}</td><td>{escape(s.what)}</td><td>{escape(s.said)}</td>"
        f'<td class="number">{s.seconds:.1f} s</td></tr>'
        for s in timeline.steps
    )
    return f"<table>{rows}</table>"


WIDTH, HEIGHT = 640, 240
LEFT, BOTTOM, TOP, RIGHT = 70, 34, 14, 12
COLOURS = ("#2f6fab", "#d9822b", "#3f9142", "#8e4b9e")

Points = Sequence[tuple[float, float]]


def _grouped_bars(title: str, groups: Mapping[str, Mapping[str, int]]) -> str:
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


def _lines(title: str, series: Mapping[str, Points], x_unit: str = "s") -> str:
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


def _long_bars(title: str, values: Mapping[str, float], unit: str = "s") -> str:
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
