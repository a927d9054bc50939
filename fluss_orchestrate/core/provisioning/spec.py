"""What a table shall be like, in Python or as the same in YAML.

tables:
  - table: sales.orders
    columns:
      order_id: bigint not null
      region: string
      amount: {type: "decimal(12,2)", comment: "in euro"}
      placed_at: timestamp[us]          # Arrow's names are understood, too
    primary_key: [order_id, region]
    partition_keys: [region]
    bucket_keys: [order_id]
    buckets: 4
    lake: true
    lake_freshness: 3min
    properties: {table.log.ttl: 7d}
    custom_properties: {owner: sales}
    partitions: [{region: eu}, {region: us}]
    comment: one row per order
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from fluss_client import Column, DataType, Schema, TableDescriptor, TableInfo, TablePath
from fluss_client.engine import from_arrow, parse_type
from fluss_client.errors import MissingExtraError, SchemaError

LAKE_ENABLED = "table.datalake.enabled"
LAKE_FRESHNESS = "table.datalake.freshness"
SPEC_VALUES_MAX = 1_000_000
_KEYS = {
    "table",
    "columns",
    "primary_key",
    "partition_keys",
    "bucket_keys",
    "buckets",
    "properties",
    "custom_properties",
    "lake",
    "lake_freshness",
    "partitions",
    "comment",
}


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column of a table spec.

    Attributes:
        name: The name of the column.
        type: The type by the name that Fluss or Arrow gives it.
        comment: The comment; None for none.
    """

    name: str
    type: str
    comment: str | None = None

    def data_type(self) -> DataType:
        """Return the data type."""
        return read_type(self.type, self.name)


@dataclass(frozen=True)
class TableSpec:
    """What a table shall be like. The cluster decides what is left out.

    Attributes:
        table: The table, as `database.table`.
        columns: The columns.
        primary_key: The columns of the primary key; empty for a log table.
        partition_keys: The partition columns; empty for a table without partitions.
        bucket_keys: The columns that decide the bucket of a row.
        buckets: The number of buckets.
        properties: Properties that Fluss understands.
        custom_properties: Properties that Fluss stores for you.
        lake: Whether the table has a lake.
        lake_freshness: The freshness of the lake, such as `3min`.
        partitions: Partitions that shall exist, by the values of their columns.
        comment: The comment; None for none.
    """

    table: str
    columns: tuple[ColumnSpec, ...]
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    bucket_keys: tuple[str, ...] = ()
    buckets: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    custom_properties: Mapping[str, str] = field(default_factory=dict)
    lake: bool | None = None
    lake_freshness: str | None = None
    partitions: tuple[Mapping[str, str], ...] = ()
    comment: str | None = None

    def __post_init__(self) -> None:
        TablePath.parse(self.table)
        for key, value in (("columns", self.columns), ("partitions", self.partitions)):
            object.__setattr__(self, key, tuple(value))
        # Building the descriptor checks keys, names and types at once.
        self.descriptor()
        for spec in self.partitions:
            check_partition_texts(self.table, spec)
            if set(spec) != set(self.partition_keys):
                raise SchemaError(
                    f"{self.table}: partition {dict(spec)} must give {list(self.partition_keys)}"
                )

    @classmethod
    def of_arrow(cls, table: str, schema: pa.Schema, **options: Any) -> TableSpec:
        """Return a spec with the columns of an Arrow schema.

        Args:
            table: The table, as `database.table`.
            schema: The Arrow schema.
            **options: Further fields of the spec.
        """
        columns = tuple(
            ColumnSpec(f.name, str(from_arrow(f.type, f.nullable, f.name))) for f in schema
        )
        return cls(table, columns, **options)

    @classmethod
    def like(
        cls, table: str, info: TableInfo, columns: Iterable[str], *, partitioned: bool = True
    ) -> TableSpec:
        """Return the spec of a table for rows of another one.

        It has the primary key, the buckets and the partition columns of the other table as far as
        the columns allow it, and none of its options.

        Args:
            table: The new table, as `database.table`.
            info: The other table.
            columns: Those of its columns that the new table has.
            partitioned: Whether the new table has partitions if the other one has.
        """
        names = set(columns)
        taken = [column for column in info.schema.columns if column.name in names]
        keys = info.get_primary_keys() if names.issuperset(info.get_primary_keys()) else []
        parts = info.get_partition_keys() if partitioned else []
        buckets = info.bucket_keys if names.issuperset(info.bucket_keys) else ()
        return cls(
            table,
            tuple(ColumnSpec(c.name, str(c.type), c.comment) for c in taken),
            primary_key=tuple(keys),
            partition_keys=tuple(parts) if names.issuperset(parts) else (),
            bucket_keys=tuple(b for b in buckets if not keys or b in keys),
            buckets=info.num_buckets,
        )

    @property
    def path(self) -> TablePath:
        """The path of the table."""
        return TablePath.parse(self.table)

    def options(self) -> dict[str, str]:
        """Return the properties of the table, with those of its lake."""
        options = {key: _text(value) for key, value in self.properties.items()}
        if self.lake is not None:
            options[LAKE_ENABLED] = _text(self.lake)
        if self.lake_freshness is not None:
            options[LAKE_FRESHNESS] = self.lake_freshness
        return options

    def schema(self) -> Schema:
        """Return the schema of the table."""
        columns = [Column(c.name, c.data_type(), c.comment) for c in self.columns]
        return Schema.of(columns, self.primary_key)

    def descriptor(self) -> TableDescriptor:
        """Return the descriptor that creates the table."""
        try:
            return TableDescriptor(
                self.schema(),
                partition_keys=self.partition_keys,
                bucket_count=self.buckets,
                bucket_keys=self.bucket_keys,
                comment=self.comment,
                properties=self.options(),
                custom_properties={k: _text(v) for k, v in self.custom_properties.items()},
            )
        except SchemaError as error:
            raise SchemaError(f"{self.table}: {error.message}") from error

    @classmethod
    def from_mapping(cls, value: Mapping[str, Any]) -> TableSpec:
        """Return a spec from a `value` of plain data, such as a YAML file contains.

        Raises:
            SchemaError: A key is unknown, or a value is not valid.
        """
        name = value.get("table") if isinstance(value, Mapping) else None
        if not isinstance(name, str):
            raise SchemaError("a table spec needs 'table: database.table'")
        try:
            return cls._from_mapping(name, value)
        except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise SchemaError(f"{name}: this is no table spec: {error}") from error

    @classmethod
    def _from_mapping(cls, name: str, value: Mapping[str, Any]) -> TableSpec:
        unknown = set(value) - _KEYS
        if unknown:
            raise SchemaError(f"{name}: unknown {sorted(unknown)}; a spec has {sorted(_KEYS)}")
        return cls(
            table=name,
            columns=tuple(_columns(name, value.get("columns"))),
            primary_key=_names(name, value, "primary_key"),
            partition_keys=_names(name, value, "partition_keys"),
            bucket_keys=_names(name, value, "bucket_keys"),
            buckets=value.get("buckets"),
            properties=_mapping(name, value, "properties"),
            custom_properties=_mapping(name, value, "custom_properties"),
            lake=value.get("lake"),
            lake_freshness=value.get("lake_freshness"),
            partitions=tuple(dict(spec) for spec in value.get("partitions") or ()),
            comment=_comment(name, value.get("comment")),
        )


def load_table_specs(source: str | Path) -> list[TableSpec]:
    """Return the specs in a YAML file, or in YAML text if `source` is not the path of a file."""
    try:
        import yaml
    except ImportError:
        raise MissingExtraError("PyYAML", "cli") from None
    path = Path(source) if isinstance(source, Path) or "\n" not in source else None
    where = str(path) if path is not None else "the YAML text"
    try:
        text = path.read_text() if path is not None else str(source)
        value = yaml.safe_load(text)
        _check_size(value, where)
    except OSError as error:
        raise SchemaError(f"cannot read {where}: {error.strerror}") from error
    except RecursionError:
        raise SchemaError(f"{where} is no table spec: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # such as the 30th of February
        raise SchemaError(f"{where} is no YAML: {error}") from error
    tables = value.get("tables") if isinstance(value, Mapping) else value
    if not isinstance(tables, list) or not all(isinstance(t, Mapping) for t in tables):
        raise SchemaError(f"{where} must hold 'tables:' with a list of table specs")
    _check_texts(tables, text, where)
    specs = [TableSpec.from_mapping(table) for table in tables]
    names = [spec.table for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"{where} describes {name} twice")
    return specs


def check_partition_texts(table: str, spec: Mapping[Any, Any]) -> None:
    """Refuse names and values of a partition that are not text.

    A partition's name is text. `str()` of anything else may name another partition than was
    meant: YAML reads a bare `no` as False, `010` as 8.
    """
    for key, value in spec.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise SchemaError(
                f"{table}: partition {dict(spec)}: {key!r} and {value!r} must both be text; in "
                f"YAML write them in quotes, such as {key}: '{_text(value)}'"
            )


def _check_texts(tables: Sequence[Mapping[Any, Any]], text: str, where: str) -> None:
    """Refuse values that YAML has read as something else than the text in the file."""
    import yaml

    loader = yaml.BaseLoader(text)  # reads every value as the text that stands there
    try:
        written = loader.get_single_data()
    finally:
        loader.dispose()
    written = written.get("tables") if isinstance(written, Mapping) else written
    for at, table in enumerate(tables):
        texts = _item(written, at)
        name = table.get("table")
        for key in ("properties", "custom_properties"):
            found = f"{where}: {name}: {key}"
            _check_values(found, table.get(key), _item(texts, key), key)
        partitions = table.get("partitions")
        for number, spec in enumerate(partitions if isinstance(partitions, list) else ()):
            there = _item(_item(texts, "partitions"), number)
            _check_values(f"{where}: {name}: partition", spec, there, "partitions")


def _check_values(where: str, values: Any, texts: Any, kind: str) -> None:
    for key, value in values.items() if isinstance(values, Mapping) else ():
        there = _item(texts, key)
        if there is None:  # It came in by a merge key and does not stand here.
            there = _text(value)
        if not isinstance(value, str) and not _means_itself(value, there, kind):
            raise SchemaError(
                f"{where} {key}: {there} is no text: YAML reads it as {value!r}. Write it in "
                f"quotes: {key}: '{there}'"
            )


def _means_itself(value: Any, there: str, kind: str) -> bool:
    """Return whether a value of an option is what its text says: 3 or true, but not 010 or null."""
    if kind == "partitions" or value is None:
        return False
    if kind == "properties" and isinstance(value, bool):
        return True
    return str(there).lower() == _text(value)


def _item(values: Any, key: Any) -> Any:
    """Return an item of a list or mapping; None if there is none."""
    if isinstance(values, Mapping):
        return values.get(key)
    return values[key] if isinstance(values, list) and key < len(values) else None


def _check_size(value: Any, where: str) -> None:
    """Refuse YAML whose aliases expand to more than fits into memory, or refer to themselves."""
    sizes: dict[int, int] = {}

    def size(part: Any) -> int:
        if not isinstance(part, Mapping | list):
            return 1
        known = sizes.get(id(part))
        if known is None:
            sizes[id(part)] = 0  # under way
            inner = part.values() if isinstance(part, Mapping) else part
            sizes[id(part)] = known = 1 + sum(size(one) for one in inner)
        if not known:
            raise SchemaError(f"{where} is no table spec: an alias in it stands for itself")
        return known

    if size(value) > SPEC_VALUES_MAX:
        raise SchemaError(f"{where} holds more than {SPEC_VALUES_MAX} values: split it")


def read_type(text: str, column: str) -> DataType:
    """Return a type by the name that Fluss, SQL or Arrow (`int64`, `timestamp[us]`) gives it."""
    words = text.strip()
    nullable = True
    if words.upper().endswith("NOT NULL"):
        nullable, words = False, words[: -len("NOT NULL")].strip()
    try:
        return from_arrow(_arrow_type(words), nullable, column)
    except ValueError:
        pass
    try:
        return parse_type(text)
    except SchemaError as error:
        raise SchemaError(f"column '{column}': {error.message}") from error


def _arrow_type(words: str) -> pa.DataType:
    # Names that both know mean Fluss's type: Arrow's `timestamp` needs a unit, `date` is no alias.
    if words in ("string", "float", "double", "binary", "time", "date"):
        raise ValueError(words)
    return pa.type_for_alias(words)


def _columns(table: str, value: Any) -> Iterable[ColumnSpec]:
    if isinstance(value, Mapping):
        pairs: list[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, Sequence) and all(isinstance(v, Mapping) for v in value):
        pairs = [(v.get("name"), v) for v in value]
    else:
        raise SchemaError(f"{table}: 'columns' is a mapping of names to types, or a list")
    for name, spec in pairs:
        if not isinstance(name, str):
            raise SchemaError(
                f"{table}: the column name {name!r} is no text; write it in quotes, such as "
                f"'{_text(name)}'"
            )
        if isinstance(spec, str):
            yield ColumnSpec(name, spec)
        elif isinstance(spec, Mapping) and isinstance(spec.get("type"), str):
            comment = _comment(f"{table}: column '{name}'", spec.get("comment"))
            yield ColumnSpec(name, spec["type"], comment)
        else:
            raise SchemaError(f"{table}: column '{name}' needs a type, such as bigint")


def _names(table: str, value: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = value.get(key) or ()
    if isinstance(names, str):
        names = (names,)
    if not all(isinstance(name, str) for name in names):
        raise SchemaError(f"{table}: '{key}' is a list of column names")
    return tuple(names)


def _mapping(table: str, value: Mapping[str, Any], key: str) -> dict[str, str]:
    pairs = value.get(key) or {}
    if not isinstance(pairs, Mapping):
        raise SchemaError(f"{table}: '{key}' is a mapping")
    return {str(k): _text(v) for k, v in pairs.items()}


def _comment(where: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise SchemaError(f"{where}: the comment {value!r} is no text; write it in quotes")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
