"""Connections of clouds give a Parquet target the properties of its store."""

from __future__ import annotations

import json

import pytest

from fluss_orchestrate.airflow import ParquetTarget


@pytest.mark.parametrize(
    ("connection", "properties"),
    [
        (
            {
                "conn_type": "aws",
                "login": "key",
                "password": "word",
                "extra": {
                    "region_name": "eu-central-1",
                    "service_config": {"s3": {"endpoint_url": "http://minio:9000"}},
                    "role_arn": "arn:aws:iam::1:role/x",
                    "verify": True,
                },
            },
            {
                "s3.access-key-id": "key",
                "s3.secret-access-key": "word",
                "s3.region": "eu-central-1",
                "s3.endpoint": "http://minio:9000",
                "s3.role-arn": "arn:aws:iam::1:role/x",
            },
        ),
        (
            {"conn_type": "wasb", "login": "account", "password": "key"},
            {"adls.account-name": "account", "adls.account-key": "key"},
        ),
        ({"conn_type": "generic", "extra": {"name": "minio"}}, {"name": "minio"}),
    ],
)
def test_a_connection_gives_the_properties_of_its_store(
    connection: dict[str, object], properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    target = ParquetTarget("s3://bucket/out", storage_conn_id="store")
    assert target._values()["storage"] == properties
    assert "word" not in repr(target)


def test_lineage_has_one_name_for_a_bucket() -> None:
    for scheme in ("s3", "s3a"):
        node = ParquetTarget(f"{scheme}://bucket/a/b").node("default")
        assert (node.namespace, node.name) == ("s3://bucket", "a/b")
    azure = ParquetTarget("abfs://files@account.dfs.core.windows.net/a").node("default")
    assert azure.namespace == "abfss://files@account.dfs.core.windows.net"
