"""The options of `format("fluss")`, read and checked once.

Spark makes option names lower case, so that case is of no account here. Whatever begins with
`client.` is a key of the client (`client.writer.batch-size`); a secret is refused.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fluss_client import TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.clusters import DEFAULT_ALIAS, ClusterRef
from fluss_orchestrate.core.incremental.planning.settings import ON_LATE_ROWS, one_of
from fluss_orchestrate.core.plan import METADATA_COLUMNS, Place, ScanPlan
from fluss_orchestrate.core.row_filter import RowFilter
from fluss_orchestrate.core.times import as_time_ms

MODES = ("current", "log", "changelog", "lake", "union")
NAMES = {
    "bootstrap.servers": "the address: host:port[,host:port] or embedded:PATH",
    "cluster": "the alias under which every process finds its secrets",
    "table": "database.table",
    "path": "the same, as load() gives it",
    "read": "current, log, changelog, lake or union",
    "as.of": "the rows as they were: a time, or offsets as JSON",
    "plan": "a plan as JSON: read exactly that",
    "start": "earliest, latest, a time, or offsets as JSON",
    "until": "latest, lake, a time, or offsets as JSON",
    "scan.incremental.start.timestamp": "start as a time",
    "scan.incremental.end.timestamp": "until as a time",
    "scan.startup.mode": "full, earliest, latest or timestamp",
    "scan.startup.timestamp": "the time of that mode",
    "columns": "columns to read, by commas",
    "metadata": "metadata columns to add, by commas, or all",
    "partition": "day=2026-01-01,region=eu; several with ;",
    "on.late.rows": "read, note or fail: rows of expired partitions (Fluss 1.0)",
    "filter": "which rows: amount > 10 and region in ('eu', 'us')",
    "limit": "at most so many rows",
    "split.records": "offsets of one Spark partition",
    "scan.maxrecordsperpartition": "the same",
    "split.bytes": "about so many bytes of rows for one Spark partition",
    "split.count": "how many Spark partitions",
    "max.rows.per.trigger": "rows of one micro-batch",
    "max.bytes.per.trigger": "about so many bytes of rows for one micro-batch",
    "operation.column": "which column says +I, +U or -D",
    "partial.update": "true: write only the columns that the frame has",
    "create.partitions": "true: create partitions that are not there",
    "overwrite.force": "true: drop rows that a checkpoint has not read",
    "query.name": "names a streaming write in the ledger of its batches",
}
SPLITS = ("split.count", "split.records", "split.bytes")
CATALOG_PREFIX = "option."
"""Begins the names of the OPTIONS of CREATE TABLE, as Spark gives them."""
NO_CATALOG = (
    "CREATE TABLE ... USING fluss is not supported, because Spark does not give the options of "
    "such a table to Python data sources when it is read or written: use CREATE TEMPORARY VIEW "
    "name USING fluss OPTIONS (...)"
)
SPARKS_OWN = ("checkpointlocation", "queryname", "mergeschema")
"""Options that Spark hands on, and that mean nothing here."""


@dataclass(frozen=True)
class SourceOptions:
    """The options, parsed. It is pickled to executors and contains no secret."""

    values: Mapping[str, str]

    def __post_init__(self) -> None:
        for key in self.values:
            if key not in NAMES and not key.startswith("client."):
                near = difflib.get_close_matches(key, NAMES, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ConfigError(f"format fluss has no option '{key}'{hint}")
        if sum(key in self.values for key in SPLITS) > 1:
            raise ConfigError(f"a read is cut one way: set only one of {', '.join(SPLITS)}")

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return the options from what Spark passes."""
        lower = {key.lower(): value for key, value in options.items()}
        if any(key.startswith(CATALOG_PREFIX) for key in lower):
            raise ConfigError(NO_CATALOG)
        if not any(lower.get(key) for key in ("table", "path", "plan")):
            raise ConfigError(
                "format fluss needs option('table', 'database.table'). If this is a table of "
                f"Spark's catalog: {NO_CATALOG}"
            )
        return cls({key: value for key, value in lower.items() if key not in SPARKS_OWN})

    def text(self, *names: str) -> str | None:
        """Return the first of these options that is set."""
        for name in names:
            if self.values.get(name):
                return self.values[name]
        return None

    def flag(self, name: str) -> bool:
        """Return an option that is true or false."""
        value = self.values.get(name, "false").lower()
        if value not in ("true", "false"):
            raise ConfigError(f"{name} is true or false, not '{value}'")
        return value == "true"

    def number(self, *names: str) -> int | None:
        """Return an option that is a positive whole number."""
        text = self.text(*names)
        if text is None:
            return None
        if not text.isdigit() or int(text) < 1:
            raise ConfigError(f"{names[0]} takes a whole number above 0, not '{text}'")
        return int(text)

    def names(self, name: str) -> tuple[str, ...]:
        """Return an option that lists names."""
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())

    @property
    def cluster(self) -> ClusterRef:
        """The cluster."""
        properties: dict[str, Any] = {
            key.removeprefix("client."): value
            for key, value in self.values.items()
            if key.startswith("client.")
        }
        if address := self.text("bootstrap.servers"):
            properties["bootstrap.servers"] = address
        return ClusterRef(self.text("cluster") or DEFAULT_ALIAS, properties)

    @property
    def table(self) -> TablePath:
        """The table."""
        if plan := self.plan:
            return plan.table.path
        name = self.text("table", "path")
        assert name is not None
        return TablePath.parse(name)

    @property
    def plan(self) -> ScanPlan | None:
        """The plan to read."""
        text = self.text("plan")
        return None if text is None else ScanPlan.from_json(json.loads(text))

    @property
    def metadata(self) -> tuple[str, ...]:
        """The metadata columns to add."""
        names = self.names("metadata")
        if names in (("all",), ("true",)):
            return METADATA_COLUMNS
        for name in names:
            if name not in METADATA_COLUMNS:
                raise ConfigError(f"metadata is some of {METADATA_COLUMNS} or all, not '{name}'")
        return names

    @property
    def partitions(self) -> list[dict[str, str]]:
        """Partitions that are wanted, each by some of its values; empty for all."""
        found = []
        for one in (self.text("partition") or "").split(";"):
            pairs = [part.split("=", 1) for part in one.split(",") if part.strip()]
            if any(len(pair) != 2 for pair in pairs):
                raise ConfigError(f"partition is written column=value[,column=value], not '{one}'")
            if pairs:
                found.append({name.strip(): value.strip() for name, value in pairs})
        return found

    @property
    def on_late_rows(self) -> str:
        """What to do about rows of expired partitions."""
        policy = self.text("on.late.rows") or "read"
        one_of("on.late.rows", policy, ON_LATE_ROWS)
        return policy

    @property
    def row_filter(self) -> RowFilter | None:
        """Which rows are wanted; None for all."""
        text = self.text("filter")
        return None if text is None else RowFilter.parse(text)

    @property
    def start(self) -> str | int | dict[Place, int] | None:
        """Where reading begins, if it is set."""
        mode = self.text("scan.startup.mode")
        if mode == "timestamp":
            return read_point(self.text("scan.startup.timestamp") or "", "scan.startup.timestamp")
        if mode is not None:
            return {"full": "earliest"}.get(mode, mode)
        text = self.text("start", "scan.incremental.start.timestamp")
        return None if text is None else read_point(text, "start")

    @property
    def until(self) -> str | int | dict[Place, int] | None:
        """Where reading ends, if it is set."""
        text = self.text("until", "scan.incremental.end.timestamp")
        return None if text is None else read_point(text, "until")

    @property
    def as_of(self) -> str | int | dict[Place, int] | None:
        """The moment whose rows are read, if it is set."""
        text = self.text("as.of")
        return None if text is None else read_point(text, "as.of")

    @property
    def mode(self) -> str | None:
        """What is read, if it is set."""
        mode = self.text("read")
        if mode is not None and mode not in MODES:
            raise ConfigError(f"read is one of {', '.join(MODES)}, not '{mode}'")
        return mode


_PLACE = re.compile("(?:([0-9]{1,18})/)?([0-9]{1,9})")


def read_point(text: str, name: str) -> str | int | dict[Place, int]:
    """Return a word, a time (milliseconds, or ISO with a zone), or offsets as JSON."""
    if text in ("earliest", "latest", "lake"):
        return text
    if text.startswith("{"):
        try:
            return offsets_of(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{name} begins like offsets and is no JSON: {error}") from None
    try:
        found = as_time_ms(text)
    except ConfigError:
        raise ConfigError(f"{name} '{text}' has no zone: add one, such as Z") from None
    if found is None:
        raise ConfigError(
            f"{name} is earliest, latest, milliseconds, a time such as 2026-01-01T00:00:00Z, or "
            f"offsets as JSON, not '{text}'"
        )
    return found


def offsets_of(value: Mapping[str, int]) -> dict[Place, int]:
    """Return offsets by place from their JSON: `{"0": 12}`, in partitions `{"17/0": 12}`."""
    found: dict[Place, int] = {}
    for key, offset in value.items():
        place = _PLACE.fullmatch(key)
        if place is None:
            raise ConfigError(f'\'{key}\' is no place: write "bucket" or "partition id/bucket"')
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise ConfigError(f"the offset of '{key}' is a whole number, not {offset!r}")
        partition, bucket = place.groups()
        found[int(partition) if partition else None, int(bucket)] = offset
    return found


def offsets_json(offsets: Mapping[Place, int]) -> dict[str, int]:
    """Return offsets as plain values, for JSON."""
    return {
        str(bucket) if partition is None else f"{partition}/{bucket}": offset
        for (partition, bucket), offset in offsets.items()
    }
