"""`fluss-orchestrate doctor`: what is installed here, and whether it works together.

What `doctor` looks at, one finding after the other; nothing heavy is imported for it.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import typer

from fluss_orchestrate.cli.connecting import Target, connect, profile_names, profiles_path
from fluss_orchestrate.cli.presentation.failures import FAILED, UsageError, one_line, sentence
from fluss_orchestrate.cli.presentation.output import table
from fluss_orchestrate.cli.session import Session, with_session

_MARKS = {"ok": "ok", "absent": "-", "wrong": "WRONG"}


@with_session
def doctor(session: Session) -> None:
    """Check Java, Spark, Airflow, Dagster, the lake, the connection, and their versions.

    What is not installed is only said; what is wrong, or does not answer, is exit code 1.

    Example:

      fluss-orchestrate doctor --bootstrap 127.0.0.1:9123
    """

    findings = list(examine(session.target))
    rows = [[_MARKS[f.verdict.value], f.what, f.found, f.advice or ""] for f in findings]
    session.answer(
        {"healthy": is_healthy(findings), "checks": [asdict(f) for f in findings]},
        lambda: table(["", "what", "found", "advice"], rows),
    )
    if not is_healthy(findings):
        raise typer.Exit(FAILED)


def is_healthy(findings: Sequence[Finding]) -> bool:
    """Return whether nothing is wrong; something may be absent."""
    return all(f.verdict != "wrong" for f in findings)


PYTHON_MIN = (3, 11)
# Package, what it is for, the extra that brings it, and the oldest version that works.
PACKAGES = (
    ("pyarrow", "the client", "", (18,)),
    ("protobuf", "the client", "", (6, 33)),
    ("pyspark", "Spark", "spark", (4, 0)),
    ("apache-airflow", "Airflow", "airflow", (3, 3)),
    ("dagster", "Dagster", "dagster", (1, 13)),
    ("pyiceberg", "the lake", "lake", (0, 11)),
    ("SQLAlchemy", "SQL stores and sinks", "sql", (2, 0)),
    ("pandas", "pandas frames", "pandas", (2, 2)),
    ("polars", "polars frames", "polars", (1, 20)),
)


class Verdict(StrEnum):
    """The verdict of a check."""

    fine = "ok"
    absent = "absent"
    wrong = "wrong"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    verdict: Verdict
    found: str
    advice: str | None = None


def examine(target: Target) -> Iterator[Finding]:
    """Return all findings, in a fixed order."""
    yield _ourselves()
    yield _python()
    for name, purpose, extra, oldest in PACKAGES:
        yield _package(name, purpose, extra, oldest)
    yield from _clash()
    yield _java()
    yield _profiles()
    yield from _connection(target)


def _ourselves() -> Finding:
    from fluss_client import __version__

    return Finding("fluss-orchestrate", Verdict.fine, __version__)


def _python() -> Finding:
    found = platform.python_version()
    if sys.version_info[:2] < PYTHON_MIN:
        return Finding("Python", Verdict.wrong, found, "use 3.11 or newer")
    return Finding("Python", Verdict.fine, found)


def _package(name: str, purpose: str, extra: str, oldest: tuple[int, ...]) -> Finding:
    from importlib import metadata

    what = f"{name} ({purpose})"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        if not extra:
            return Finding(what, Verdict.wrong, "missing", f"pip install {name}")
        return Finding(
            what, Verdict.absent, "not installed", f"pip install 'fluss-orchestrate[{extra}]'"
        )
    if version_of(version) < oldest:
        needed = ".".join(map(str, oldest))
        return Finding(what, Verdict.wrong, version, f"{needed} or newer is needed")
    return Finding(what, Verdict.fine, version)


def version_of(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version."""
    numbers = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _clash() -> Iterator[Finding]:
    """Return the finding if pyspark-client has overwritten files of pyspark."""
    from importlib import metadata

    installed = {str(d.metadata["Name"]).lower() for d in metadata.distributions()}
    if {"pyspark", "pyspark-client"} <= installed:
        advice = "uninstall both, then install pyspark alone"
        yield Finding("pyspark-client", Verdict.wrong, "beside pyspark, broken", advice)


def _java() -> Finding:
    from fluss_client.testing import JavaNotFoundError, find_java

    try:
        java = find_java()
    except JavaNotFoundError as error:
        advice = "needed for Spark and for `cluster up` only"
        return Finding("Java", Verdict.absent, one_line(error.message), advice)
    return Finding("Java", Verdict.fine, f"{java.version} in {java.home}")


def _profiles() -> Finding:
    try:
        found = profile_names()
    except Exception as error:  # noqa: BLE001 (whatever is wrong with the file is the finding)
        return Finding("profiles", Verdict.wrong, one_line(sentence(error)))
    if not found:
        return Finding("profiles", Verdict.absent, f"none in {profiles_path()}")
    return Finding("profiles", Verdict.fine, ", ".join(found))


def _connection(target: Target) -> Iterator[Finding]:
    try:
        config = target.settings()
    except UsageError as error:
        if target == Target():
            yield Finding(
                "connection", Verdict.absent, "no address", "give --bootstrap or --profile"
            )
            return
        yield Finding("connection", Verdict.wrong, one_line(str(error)))
        return
    except Exception as error:  # noqa: BLE001 (whatever keeps us from the server is the finding)
        yield Finding("connection", Verdict.wrong, one_line(sentence(error)))
        return
    address = config.resolved_bootstrap()
    try:
        with connect(target) as connection:
            admin = connection.get_admin().result()
            servers = admin.get_server_nodes().result()
            kind = admin.capabilities.name
    except Exception as error:  # noqa: BLE001 (see above)
        yield Finding("connection", Verdict.wrong, one_line(sentence(error)))
        return
    listed = ", ".join(f"{s.uid} {s.host}:{s.port}" for s in servers)
    yield Finding("connection", Verdict.fine, f"{kind} at {address}")
    yield Finding("servers", Verdict.fine, listed)
    yield Finding("cluster alias", Verdict.fine, config.resolved_alias())
