"""Times, offsets and receipts as people write them on a command line."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.cli.presentation.failures import CommandError, UsageError

if TYPE_CHECKING:
    from fluss_client import TablePath
    from fluss_orchestrate.cli.session import Session
    from fluss_orchestrate.core.receipts import Receipt

FORMS = "a time (2026-11-16T08:00Z, -15m, milliseconds since 1970), offsets (0=120,1=95)"
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"-(\d+)([smhd])\Z")
_OFFSETS = re.compile(r"(?:[^,=]+=\d+)(?:,[^,=]+=\d+)*\Z")


def moment(session: Session, table: str, text: str, words: tuple[str, ...], option: str) -> Any:
    """Return a point in a log: one of `words`, a time, offsets, or `@file` with a receipt."""
    if text in words:
        return text
    if text.startswith("@"):
        return read_receipt(Path(text[1:]))
    if _OFFSETS.match(text):
        return _offsets(session, table, text, option)
    found = _time(text, option)
    if found is None:
        raise UsageError(
            f"{option} '{text}' is not understood: give {', '.join(words)}, {FORMS}, or @FILE "
            "with a receipt"
        )
    return found


def time_ms(text: str, option: str) -> int:
    """Return a time in milliseconds since 1970."""
    found = _time(text, option)
    if found is None:
        raise UsageError(f"{option} '{text}' is no time: give 2026-11-16T08:00Z, -15m or so")
    return found


def _time(text: str, option: str) -> int | None:
    from fluss_client.errors import ConfigError
    from fluss_orchestrate.core.times import as_time_ms

    span = _SPAN.match(text)
    if span:
        return time.time_ns() // 1_000_000 - int(span[1]) * _UNITS_MS[span[2]]
    try:
        return as_time_ms(text)
    except ConfigError:
        raise UsageError(
            f"{option} '{text}' has no time zone: add Z for UTC, or such as +02:00"
        ) from None


def _offsets(session: Session, table: str, text: str, option: str) -> dict[Any, int]:
    """Parse `bucket=offset,...`, or `partition/bucket=offset,...` for a table with partitions."""
    found: dict[Any, int] = {}
    ids: dict[str, int] | None = None
    for pair in text.split(","):
        place, _, offset = pair.partition("=")
        partition, slash, bucket = place.rpartition("/")
        if not bucket.strip().isdecimal():
            raise UsageError(f"{option} '{pair}': write bucket=offset or partition/bucket=offset")
        if not slash:
            found[None, int(bucket)] = int(offset)
            continue
        if ids is None:
            ids = _partition_ids(session, table)
        if partition not in ids:
            raise CommandError(f"{table} has no partition '{partition}'")
        found[ids[partition], int(bucket)] = int(offset)
    return found


def _partition_ids(session: Session, table: str) -> dict[str, int]:
    """Return the ids of all partitions by name, also of that with rows of expired ones."""
    from fluss_client.engine import backend_of, existing_partitions, run_blocking

    info = session.admin.get_table_info(path_of(table)).result()
    if not info.is_partitioned():
        raise CommandError(f"{table} has no partitions: write bucket=offset")
    found = run_blocking(existing_partitions(backend_of(session.connection), info))
    return {partition.partition_name: partition.partition_id for partition in found}


def read_receipt(path: Path) -> Receipt:
    """Return the receipt that another command printed with `--json`."""
    from fluss_orchestrate.core.receipts import Receipt

    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise CommandError(f"{path} is no JSON: {error}") from None
    if isinstance(value, dict) and isinstance(value.get("receipt"), dict):
        value = value["receipt"]
    return Receipt.from_json(value)


def path_of(table: str) -> TablePath:
    """Return `database.table` as a path."""
    from fluss_client import TablePath
    from fluss_client.errors import SchemaError

    try:
        return TablePath.parse(table)
    except SchemaError as error:
        raise UsageError(str(error)) from None
