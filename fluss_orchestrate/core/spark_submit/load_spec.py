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
    """The source of the rows of a bulk load.

    Attributes:
        kind: `parquet`, `orc`, `csv` or `json` (with `paths`), `table` or `iceberg` (with `table`),
            `query` (with `query`) or `jdbc` (with `table` or `query`).
        paths: The files or folders.
        table: The name of the table.
        query: A Spark SQL query; for `jdbc`, a query of the database.
        options: The options of Spark's reader; for `iceberg`, the properties of the catalog.
        secret_options: For each secret option, the environment variable of the driver that contains
            it.
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
        """Return the source as plain values."""
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
    """One bulk load. A load id always means the same rows: submitting it again resumes the load.

    Attributes:
        source: The source of the rows.
        table: The table to load, as `database.table`.
        load_id: The name of the load.
        transform_sql: Spark SQL over the view `source`, applied before `columns`.
        columns: The source column of each table column, where their names differ.
        provision: A table spec as in YAML; the table is created or extended before the load.
        create_partitions: Create the partitions that the rows need.
        order_by: For key tables: of rows with the same key, the one with the greatest value in this
            column is loaded.
        staging: A folder that the driver and the executors can reach, for rows that are not in
            Parquet files.
        dead_letter: A folder for rows that do not fit the table; without it, the first such row
            ends the load.
        batch_bytes: The size of a batch.
        keep_staging: Keep the staged files after the load.
    """

    source: LoadSource
    table: str
    load_id: str
    transform_sql: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    provision: Mapping[str, Any] | None = None
    create_partitions: bool = False
    order_by: str | None = None
    staging: str | None = None
    dead_letter: str | None = None
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
        """Return the spec as JSON text."""
        value = {"version": SPEC_VERSION}
        value |= {f.name: getattr(self, f.name) for f in fields(self)}
        value["source"] = self.source.to_json()  # type: ignore[assignment]
        value["columns"] = dict(self.columns)  # type: ignore[assignment]
        return json.dumps(value, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> BulkLoadSpec:
        """Return the spec from the `text` that `to_json` returned.

        Raises:
            CorruptDataError: The text is not a spec, or was written by a newer version.
        """
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
