"""The catalog behind a lake: found from the table's properties, secrets kept out of sight."""

from __future__ import annotations

import pytest

from fluss_client import Schema, TablePath
from fluss_client.errors import ConfigError, UnsupportedError
from fluss_client.model.table import TableInfo
from fluss_orchestrate.core.lake import (
    CatalogError,
    CatalogUnreachableError,
    NoLakeError,
    catalog_properties,
    redacted,
)
from fluss_orchestrate.core.lake.catalog import open_catalog, to_pyiceberg
from tests.orchestrate.lake.tables import COLUMNS


def info(**lake: str) -> TableInfo:
    return TableInfo(
        table_id=1,
        table_path=TablePath("d", "t"),
        schema_id=1,
        schema=Schema(COLUMNS),
        partition_keys=(),
        bucket_keys=(),
        num_buckets=1,
        properties={
            "table.datalake.enabled": "true",
            "table.datalake.format": "iceberg",
            **{f"table.datalake.iceberg.{k}": v for k, v in lake.items()},
        },
        custom_properties={},
    )


@pytest.mark.parametrize(
    ("jdbc", "sqlalchemy"),
    [
        ("jdbc:sqlite:/a/b.db", "sqlite:////a/b.db?timeout=60"),
        ("jdbc:sqlite:file:/a/b.db?x=1", "sqlite:////a/b.db?timeout=60"),
        ("jdbc:postgresql://h:5432/db", "postgresql+psycopg2://u%40x:p%2Fw@h:5432/db"),
        ("sqlite:////a.db", "sqlite:////a.db"),
    ],
)
def test_jdbc(jdbc: str, sqlalchemy: str) -> None:
    given = {"type": "jdbc", "uri": jdbc, "jdbc.user": "u@x", "jdbc.password": "p/w"}
    assert to_pyiceberg({**given, "jdbc.schema-version": "V1", "warehouse": "w"}) == {
        "type": "sql",
        "uri": sqlalchemy,
        "warehouse": "w",
        "name": "fluss-iceberg-catalog",
    }


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"type": "rest"}, "rest"),
        ({"type": "hive"}, "hive"),
        ({"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog"}, "glue"),
        ({"catalog-impl": "org.apache.iceberg.rest.RESTCatalog"}, "rest"),
    ],
)
def test_other_catalogs(given: dict[str, str], kind: str) -> None:
    found = to_pyiceberg({**given, "uri": "http://h", "s3.endpoint": "http://s", "name": "mine"})
    assert found == {"type": kind, "uri": "http://h", "s3.endpoint": "http://s", "name": "mine"}


@pytest.mark.parametrize(
    ("properties", "kind", "says"),
    [
        ({"type": "rest", "uri": "http://127.0.0.1:1"}, CatalogUnreachableError, "does not answer"),
        (
            {"type": "sql", "uri": "postgresql+psycopg2://me:hidden@127.0.0.1:1/db"},
            CatalogUnreachableError,
            "does not answer",
        ),
        ({"type": "rest"}, CatalogError, "URI missing"),
        ({"type": "rest", "uri": "nowhere"}, CatalogError, "write http://host:port"),
        ({"type": "sql", "uri": "nowhere"}, CatalogError, "check its uri, and its database"),
        (
            {"type": "sql", "uri": "sqlite:////no-such-folder/catalog.db"},
            CatalogUnreachableError,
            "does not answer: check its uri",
        ),
        ({"type": "glue"}, CatalogError, r"pip install 'pyiceberg\[glue\]'"),
        ({"type": "hive", "uri": "thrift://h:1"}, CatalogError, r"pip install 'pyiceberg\[hive\]'"),
    ],
)
def test_a_catalog_that_does_not_open_is_one_sentence(
    properties: dict[str, str], kind: type[CatalogError], says: str
) -> None:
    with pytest.raises(kind, match=says) as told:
        open_catalog(properties)
    assert "\n" not in str(told.value)
    assert "hidden" not in str(told.value)
    assert kind.retriable is (kind is CatalogUnreachableError)


def test_what_pyiceberg_cannot_open() -> None:
    with pytest.raises(UnsupportedError, match="'hadoop'"):
        to_pyiceberg({"type": "hadoop"})
    with pytest.raises(ConfigError, match="override 'uri'"):
        to_pyiceberg({"type": "jdbc", "uri": "jdbc:oracle:thin:@h"})


def test_environment_and_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUSS_LAKE_MY_CLUSTER__S3__SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("FLUSS_LAKE_MY_CLUSTER__WAREHOUSE", "from-environment")
    monkeypatch.setenv("FLUSS_LAKE_OTHER__TOKEN", "not mine")
    table = info(type="rest", uri="http://h", warehouse="from-table")
    found = catalog_properties(table, "my-cluster", {"uri": "http://override"})
    assert found == {
        "type": "rest",
        "name": "fluss-iceberg-catalog",
        "uri": "http://override",
        "warehouse": "from-environment",
        "s3.secret-access-key": "hidden",
    }


def test_secrets_are_not_shown() -> None:
    shown = redacted(
        {
            "s3.secret-access-key": "one",
            "token": "two",
            "credential": "three",
            "jdbc.password": "four",
            "uri": "postgresql://user:five@host/db",
            "warehouse": "s3://w",
        }
    )
    assert shown["uri"] == "postgresql://******@host/db"
    assert shown["warehouse"] == "s3://w"
    assert not {"one", "two", "three", "four", "five"} & set(str(shown).split("'"))


def test_no_lake() -> None:
    table = info()
    with pytest.raises(NoLakeError):
        catalog_properties(
            TableInfo(**{**table.__dict__, "properties": {}}),
            "default",
        )
    paimon = {**table.properties, "table.datalake.format": "paimon"}
    with pytest.raises(UnsupportedError, match="paimon"):
        catalog_properties(TableInfo(**{**table.__dict__, "properties": paimon}), "default")
