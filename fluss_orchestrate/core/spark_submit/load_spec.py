"""What a bulk load shall do, as plain values: where rows come from, what becomes of them, where to.

A spec travels as JSON to the driver. It holds no secret; a JDBC password is named by the variable
that the driver finds it in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fluss_client import TablePath
from fluss_client.errors import ConfigError, CorruptDataError

SPEC_VERSION = 1
FILE_KINDS = ("parquet", "orc", "csv", "json")
KINDS = (*FILE_KINDS, "jdbc", "iceberg", "table", "query")
_SECRET_OPTION = re.compile(r"(?i)passw|secret|token|credential|access.?key")


@dataclass(frozen=True)
class LoadSource:
    """Where rows come from.

    `parquet`, `orc`, `csv` and `json` have `paths`; `table` and `iceberg` a `table`; `query` a
    Spark SQL `query`; `jdbc` a `table` or a `query`. `options` are those of Spark's reader (of
    `iceberg`: the catalog's properties). `secret_options` names, per option, the environment
    variable of the driver that holds its value.
    """

    kind: str
    paths: tuple[str, ...] = ()
    table: str | None = None
    query: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    secret_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", _path_list(self.paths))
        if self.kind not in KINDS:
            raise ConfigError(f"a source is one of {', '.join(KINDS)}, not '{self.kind}'")
        needs, has = self._needs(), self._has()
        if not needs & has:
            raise ConfigError(f"a source of kind {self.kind} needs {' or '.join(sorted(needs))}")
        if has - needs:
            raise ConfigError(f"a source of kind {self.kind} takes no {sorted(has - needs)[0]}")
        for key in self.options:
            if _SECRET_OPTION.search(key):
                raise ConfigError(
                    f"the source's option {key} is a secret: name the variable that holds it in "
                    "secret_options"
                )

    def _needs(self) -> set[str]:
        if self.kind in FILE_KINDS:
            return {"paths"}
        if self.kind == "jdbc":
            return {"table", "query"}
        return {"query"} if self.kind == "query" else {"table"}

    def _has(self) -> set[str]:
        return {name for name in ("paths", "table", "query") if getattr(self, name)}

    def to_json(self) -> dict[str, Any]:
        """The source as plain values."""
        return {
            "kind": self.kind,
            "paths": list(self.paths),
            "table": self.table,
            "query": self.query,
            "options": dict(self.options),
            "secret_options": dict(self.secret_options),
        }


@dataclass(frozen=True)
class BulkLoadSpec:
    """One bulk load. The load id stands for these rows for good: submitting it again resumes it."""

    source: LoadSource
    table: str
    load_id: str
    transform_sql: str | None = None
    """Spark SQL over the view `source`, applied before `columns`."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Table column → source column, where their names differ."""
    provision: Mapping[str, Any] | None = None
    """A table spec as in YAML; the table is created or extended before the load."""
    create_partitions: bool = False
    order_by: str | None = None
    """Key tables: of rows with the same key the one with the greatest value here is loaded."""
    staging: str | None = None
    """A folder that driver and executors reach, for rows that are not in Parquet files already."""
    dead_letter: str | None = None
    """A folder for rows that do not fit the table; without it, the first one ends the load."""
    batch_bytes: int = 2 << 20
    keep_staging: bool = False

    def __post_init__(self) -> None:
        TablePath.parse(self.table)
        if not re.fullmatch(r"[^\s/][^\n]{0,499}", self.load_id):
            raise ConfigError(
                f"{self.load_id!r} is no load id: use 1 to 500 characters that name these rows for "
                "good, such as dag/task/run"
            )
        if not 1024 <= self.batch_bytes <= 8 << 20:
            raise ConfigError(f"batch_bytes lies between 1024 and 8 MiB, not {self.batch_bytes}")

    def to_json(self) -> str:
        """The spec as JSON text."""
        value = {"version": SPEC_VERSION}
        value |= {f.name: getattr(self, f.name) for f in fields(self)}
        value["source"] = self.source.to_json()  # type: ignore[assignment]
        value["columns"] = dict(self.columns)  # type: ignore[assignment]
        return json.dumps(value, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> BulkLoadSpec:
        """The spec from `to_json`; one of a newer version is refused."""
        try:
            value = json.loads(text)
            if value.pop("version") > SPEC_VERSION:
                raise CorruptDataError(
                    "this load spec was written by a newer fluss-orchestrate; upgrade this one"
                )
            source = LoadSource(**value.pop("source"))
            spec = cls(source=source, **value)
            spec.to_json()  # what cannot be written down again is no spec either
            return spec
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError(f"this is no load spec: {error}") from error


def _path_list(paths: Any) -> tuple[str, ...]:
    if isinstance(paths, str):
        raise ConfigError(f"paths takes a list of paths, not the text '{paths}'")
    return tuple(str(path) for path in paths)


def files(kind: str, paths: Sequence[str] | str, **options: str) -> LoadSource:
    """A source of files: `files("csv", "in/*.csv", header="true")`."""
    return LoadSource(kind, (paths,) if isinstance(paths, str) else tuple(paths), options=options)
