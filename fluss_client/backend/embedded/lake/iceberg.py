"""Creates the Iceberg table of a lake-enabled table, as the coordinator of a cluster does.

Catalog and warehouse are in `lake/` next to the database file. Clients get their addresses in the
form of a cluster, as a JDBC catalog; PyIceberg's SQL catalog reads the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fluss_client.backend.embedded.store.database import DIRECTORY_MODE
from fluss_client.backend.embedded.store.errors import EmbeddedStorageError
from fluss_client.backend.embedded.store.validation import is_lake_enabled
from fluss_client.errors import (
    InvalidTableError,
    LakeTableAlreadyExistError,
    MissingExtraError,
    UnknownServerError,
)
from fluss_client.model.arrow import arrow_type
from fluss_client.model.iceberg import iceberg_type
from fluss_client.model.table import TableDescriptor, TablePath
from fluss_client.model.types import StringType

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
        """Return the settings of the catalog, under the names of a cluster."""
        return {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self._folder / CATALOG_FILE}",
            "warehouse": f"file://{quote(str(self._folder / WAREHOUSE))}",
            "jdbc.schema-version": "V1",
        }

    def properties(self, descriptor: TableDescriptor) -> Mapping[str, str]:
        """Return the properties that a lake-enabled table has for its catalog."""
        if not is_lake_enabled(descriptor.properties):
            return {}
        return {f"table.datalake.iceberg.{key}": text for key, text in self.settings().items()}

    def create_table(self, path: TablePath, descriptor: TableDescriptor) -> None:
        """Create the Iceberg table; error 54 if the lake has one of that name."""
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

        # PyIceberg creates files with the default mode; the mode of the folders keeps others out.
        for folder in (self._folder, self._folder / WAREHOUSE):
            folder.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        return SqlCatalog(
            CATALOG_NAME,
            uri=f"sqlite:///{self._folder / CATALOG_FILE}",
            warehouse=self.settings()["warehouse"],
        )


def require_pyiceberg() -> None:
    """Raise MissingExtraError if PyIceberg or its SQL catalog cannot be imported."""
    try:
        import pyiceberg.catalog.sql  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("pyiceberg", "lake") from error


def _check(descriptor: TableDescriptor) -> None:
    if len(descriptor.bucket_keys) > 1:
        raise UnknownServerError("Iceberg takes one bucket key at most")
    for name in descriptor.partition_keys:
        if not isinstance(descriptor.schema.column(name).type, StringType):
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
            iceberg_type(arrow_type(column.type), numbers),
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
