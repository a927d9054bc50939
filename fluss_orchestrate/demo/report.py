"""The demo's report: one HTML file that opens without network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from fluss_orchestrate.demo import charts, shop
from fluss_orchestrate.demo.proof import Proof
from fluss_orchestrate.demo.timeline import Timeline

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
        charts.grouped_bars("Rows per round", timeline.rows),
        charts.lines(
            "Offsets of the orders over time",
            {
                "written": [(s.at_s, s.written) for s in samples],
                "read by the checkpoint": [(s.at_s, s.read) for s in samples],
                "in the lake": [(s.at_s, s.in_lake) for s in samples],
            },
        ),
        charts.lines(
            "Lag over time, in rows",
            {
                "checkpoint": [(s.at_s, s.written - s.read) for s in samples],
                "lake": [(s.at_s, s.written - s.in_lake) for s in samples],
            },
        ),
        charts.lines(
            "Lake freshness: seconds behind the log",
            {
                table.partition(".")[2]: [
                    (s.at_s, s.lake_behind_s) for s in timeline.samples if s.table == table
                ]
                for table in (shop.ORDERS, shop.LINES)
            },
        ),
        charts.long_bars("Where time went", phases),
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
