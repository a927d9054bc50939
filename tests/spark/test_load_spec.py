"""Load specs: JSON and back, and what cannot be meant is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fluss_client.errors import ConfigError, CorruptDataError
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource, files

WHOLE = BulkLoadSpec(
    files("csv", "in/*.csv", header="true"),
    "sales.orders",
    "dag/task/2026-01-01",
    transform_sql="SELECT * FROM source",
    columns={"id": "Key"},
    provision={"columns": {"id": "bigint"}, "buckets": 3},
    create_partitions=True,
    order_by="at",
    staging="/staging",
    dead_letter="/letters",
    keep_staging=True,
)


def test_json_and_back() -> None:
    assert BulkLoadSpec.from_json(WHOLE.to_json()) == WHOLE


def test_a_newer_or_damaged_spec_is_refused() -> None:
    value = json.loads(WHOLE.to_json())
    with pytest.raises(CorruptDataError, match="newer"):
        BulkLoadSpec.from_json(json.dumps({**value, "version": 99}))
    for text in ("", "[]", "{}", json.dumps({**value, "extra": 1})):
        with pytest.raises(CorruptDataError, match="no load spec"):
            BulkLoadSpec.from_json(text)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"kind": "xml", "paths": ["a"]}, "not 'xml'"),
        ({"kind": "csv"}, "needs paths"),
        ({"kind": "csv", "paths": "a"}, "a list of paths"),
        ({"kind": "query", "query": "q", "table": "t"}, "takes no table"),
        ({"kind": "jdbc", "table": "t", "options": {"password": "x"}}, "secret_options"),
    ],
)
def test_sources_that_cannot_be_meant(source: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LoadSource(**source)


@pytest.mark.parametrize("load_id", ["", " x", "/x", "a\nb", "x" * 501])
def test_load_ids_that_name_nothing(load_id: str) -> None:
    with pytest.raises(ConfigError, match="no load id"):
        BulkLoadSpec(LoadSource("query", query="q"), "a.b", load_id)
