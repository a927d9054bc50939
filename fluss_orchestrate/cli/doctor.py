"""`fluss-orchestrate doctor`: what is installed here, and whether it works together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from fluss_orchestrate.cli.failures import FAILED
from fluss_orchestrate.cli.output import table
from fluss_orchestrate.cli.session import Session, with_session

if TYPE_CHECKING:
    from fluss_orchestrate.cli.diagnosis import Finding

_MARKS = {"ok": "ok", "absent": "-", "wrong": "WRONG"}


@with_session
def doctor(session: Session) -> None:
    """Check Java, Spark, Airflow, Dagster, the lake, the connection, and their versions.

    What is not installed is only said; what is wrong, or does not answer, is exit code 1.

    Example:

      fluss-orchestrate doctor --bootstrap 127.0.0.1:9123
    """
    from fluss_orchestrate.cli.diagnosis import examine

    findings = list(examine(session.target))
    rows = [[_MARKS[f.verdict.value], f.what, f.found, f.advice or ""] for f in findings]
    session.answer(
        {"healthy": is_healthy(findings), "checks": [asdict(f) for f in findings]},
        lambda: table(["", "what", "found", "advice"], rows),
    )
    if not is_healthy(findings):
        raise typer.Exit(FAILED)


def is_healthy(findings: Sequence[Finding]) -> bool:
    """Whether nothing is wrong; what is absent may be so."""
    return all(f.verdict != "wrong" for f in findings)
