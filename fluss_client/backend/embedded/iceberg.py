"""The Iceberg table of a lake-enabled table: made as the coordinator of a cluster makes it.

Catalog and warehouse lie in `lake/` beside the database. Their addresses are shown to clients as
a cluster's are, in the form of a JDBC catalog, which PyIceberg's SQL catalog reads as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fluss_client.backend.embedded.database import DIRECTORY_MODE
from fluss_client.backend.embedded.errors import EmbeddedStorageError
from fluss_client.backend.embedded.validation import is_lake_enabled
from fluss_client.errors import (
    InvalidTableError,
    LakeTableAlreadyExistError,
    MissingExtraError,
    UnknownServerError,
)
from fluss_client.model.table import TableDescriptor, TablePath
from fluss_client.model.types import DataType, Root

CATALOG_NAME = "fluss-iceberg-catalog"
FOLDER = "lake"
CATALOG_FILE = "iceberg.db"
WAREHOUSE = "warehouse"
SYSTEM_COLUMNS = ("__bucket", "__offset", "__timestamp")
_ICEBERG_PREFIX, _FLUSS_PREFIX = "iceberg.", "fluss."
_MERGE_ON_READ = dict.fromkeys(
    ("write.delete.mode", "write.update.mode", "write.merge.mode"), "merge-on-read"
)


class Lake:
    """The lake of one directory."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER

    def settings(self) -> dict[str, str]:
        """How to reach the catalog, under the names that a cluster has for it."""
        return {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self._folder / CATALOG_FILE}",
            "warehouse": f"file://{quote(str(self._folder / WAREHOUSE))}",
            "jdbc.schema-version": "V1",
        }

    def properties(self, descriptor: TableDescriptor) -> Mapping[str, str]:
        """What a lake-enabled table shows of the catalog among its own properties."""
        if not is_lake_enabled(descriptor.properties):
            return {}
        return {f"table.datalake.iceberg.{key}": text for key, text in self.settings().items()}

    def create_table(self, path: TablePath, descriptor: TableDescriptor) -> None:
        """Make the Iceberg table; error 54 when the lake has one of that name."""
        _check(descriptor)
        catalog = self._catalog()
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.table.sorting import SortField, SortOrder
        from pyiceberg.transforms import IdentityTransform

        schema = _schema(descriptor)
        _check_bucket_key(descriptor, schema)
        try:
            catalog.create_namespace_if_not_exists(path.database_name)
            catalog.create_table(
                (path.database_name, path.table_name),
                schema,
                partition_spec=_partition_spec(descriptor, schema),
                sort_order=SortOrder(
                    SortField(schema.find_field("__offset").field_id, IdentityTransform())
                ),
                properties=_properties(descriptor),
            )
        except TableAlreadyExistsError as error:
            raise LakeTableAlreadyExistError(f"the lake has a table {path} already") from error
        except OSError as error:
            raise EmbeddedStorageError(f"{self._folder} cannot be written: {error}") from error
        finally:
            catalog.engine.dispose()

    def _catalog(self) -> Any:
        require_pyiceberg()
        from pyiceberg.catalog.sql import SqlCatalog

        # Iceberg's files have the modes that the process gives; their folders keep others out.
        for folder in (self._folder, self._folder / WAREHOUSE):
            folder.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        return SqlCatalog(
            CATALOG_NAME,
            uri=f"sqlite:///{self._folder / CATALOG_FILE}",
            warehouse=self.settings()["warehouse"],
        )


def require_pyiceberg() -> None:
    """MissingExtraError unless PyIceberg and its SQL catalog can be imported."""
    try:
        import pyiceberg.catalog.sql  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("pyiceberg", "lake") from error


def _check(descriptor: TableDescriptor) -> None:
    if len(descriptor.bucket_keys) > 1:
        raise UnknownServerError("Iceberg takes one bucket key at most")
    for name in descriptor.partition_keys:
        if descriptor.schema.column(name).type.root not in (Root.STRING, Root.CHAR):
            raise InvalidTableError(f"partition column '{name}' must be a string for Iceberg")


def _check_bucket_key(descriptor: TableDescriptor, schema: Any) -> None:
    from pyiceberg.transforms import BucketTransform

    for name in descriptor.bucket_keys:
        if not BucketTransform(descriptor.bucket_count or 1).can_transform(schema.find_type(name)):
            raise UnknownServerError(f"Iceberg cannot make buckets of column '{name}'")


def _schema(descriptor: TableDescriptor) -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IntegerType, LongType, NestedField, TimestamptzType

    own = descriptor.schema
    count = len(own.columns)
    numbers = iter(range(count + len(SYSTEM_COLUMNS) + 1, 1 << 31))
    fields = [
        NestedField(
            at,
            column.name,
            _iceberg_type(column.type, numbers),
            required=not column.type.nullable,
            doc=column.comment,
        )
        for at, column in enumerate(own.columns, 1)
    ]
    kinds = (IntegerType(), LongType(), TimestamptzType())
    for at, (name, kind) in enumerate(zip(SYSTEM_COLUMNS, kinds, strict=True), count + 1):
        fields.append(NestedField(at, name, kind, required=True))
    keys = [own.index[name] + 1 for name in own.primary_keys]
    return Schema(*fields, identifier_field_ids=keys)


def _iceberg_type(kind: DataType, numbers: Any) -> Any:
    from pyiceberg import types

    plain: dict[Root, Any] = {
        Root.BOOLEAN: types.BooleanType,
        Root.TINYINT: types.IntegerType,
        Root.SMALLINT: types.IntegerType,
        Root.INTEGER: types.IntegerType,
        Root.BIGINT: types.LongType,
        Root.FLOAT: types.FloatType,
        Root.DOUBLE: types.DoubleType,
        Root.CHAR: types.StringType,
        Root.STRING: types.StringType,
        Root.BINARY: types.BinaryType,
        Root.BYTES: types.BinaryType,
        Root.DATE: types.DateType,
        Root.TIME: types.TimeType,
        Root.TIMESTAMP: types.TimestampType,
        Root.TIMESTAMP_LTZ: types.TimestamptzType,
    }
    if kind.root in plain:
        return plain[kind.root]()
    if kind.root is Root.DECIMAL:
        return types.DecimalType(kind.precision, kind.scale)
    if kind.root is Root.ROW:
        ids = [next(numbers) for _ in kind.fields]
        return types.StructType(
            *(
                types.NestedField(
                    at, f.name, _iceberg_type(f.type, numbers), required=not f.type.nullable
                )
                for at, f in zip(ids, kind.fields, strict=True)
            )
        )
    element = kind.element
    assert element is not None
    if kind.root is Root.ARRAY:
        own = next(numbers)
        inner = _iceberg_type(element, numbers)
        return types.ListType(own, inner, element_required=not element.nullable)
    assert kind.key is not None
    key_id, value_id = next(numbers), next(numbers)
    return types.MapType(
        key_id,
        _iceberg_type(kind.key, numbers),
        value_id,
        _iceberg_type(element, numbers),
        value_required=not element.nullable,
    )


def _partition_spec(descriptor: TableDescriptor, schema: Any) -> Any:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import BucketTransform, IdentityTransform

    parts: list[tuple[str, Any, str]] = [
        (name, IdentityTransform(), name) for name in descriptor.partition_keys
    ]
    if descriptor.bucket_keys:
        key = descriptor.bucket_keys[0]
        parts.append((key, BucketTransform(descriptor.bucket_count or 1), f"{key}_bucket"))
    else:
        parts.append(("__bucket", IdentityTransform(), "__bucket"))
    return PartitionSpec(
        *(
            PartitionField(schema.find_field(source).field_id, 1000 + at, transform, name)
            for at, (source, transform, name) in enumerate(parts)
        )
    )


def _properties(descriptor: TableDescriptor) -> dict[str, str]:
    properties = dict(_MERGE_ON_READ) if descriptor.schema.primary_keys else {}
    for key, value in (*descriptor.properties.items(), *descriptor.custom_properties.items()):
        own = key.startswith(_ICEBERG_PREFIX)
        name = key.removeprefix(_ICEBERG_PREFIX) if own else _FLUSS_PREFIX + key
        properties[name] = value
    return properties
