"""Each registered data type has an entry in every map to another system."""

from __future__ import annotations

import itertools

import pytest

from fluss_client.model.arrow import arrow_type
from fluss_client.model.iceberg import iceberg_type
from fluss_client.model.types import DataType, registered_types
from fluss_orchestrate.core.sinks.sql_types import sql_type
from fluss_orchestrate.spark.source.types import arrow_type as arrow_type_of_spark
from fluss_orchestrate.spark.source.types import spark_type

EXAMPLES = [example for cls in registered_types() for example in cls.examples()]


@pytest.mark.parametrize("data_type", EXAMPLES, ids=str)
def test_every_map_has_it(data_type: DataType) -> None:
    arrow = arrow_type(data_type)
    assert iceberg_type(arrow, itertools.count(1))
    assert (type(sql_type(arrow, "postgresql")).__name__ == "JSON") == data_type.is_nested
    assert arrow_type_of_spark(spark_type(data_type))
