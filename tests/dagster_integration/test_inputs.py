"""What an input asks for by its annotation, and what it is given."""

from typing import Any, Optional

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fluss_client.errors import ConfigError
from fluss_orchestrate.dagster import FlussIOManager, FlussResource
from fluss_orchestrate.dagster.io.handlers import wanted_frame
from tests.dagster_integration.tables import orders


def test_an_input_gets_what_its_annotation_says(fluss: FlussResource, database: str) -> None:
    seen: dict[str, type] = {}

    @dg.asset(key=[database, "stored"])
    def stored():  # type: ignore[no-untyped-def]
        return orders(5)

    rows = {"rows": dg.AssetIn([database, "stored"])}

    @dg.asset(ins=rows)
    def plain(rows) -> None:  # type: ignore[no-untyped-def]
        seen["plain"] = type(rows)

    @dg.asset(ins=rows)
    def anything(rows: Any) -> None:
        seen["anything"] = type(rows)

    @dg.asset(ins=rows)
    def optional(rows: Optional[pd.DataFrame]) -> None:  # noqa: UP045
        seen["optional"] = type(rows)

    @dg.asset(ins=rows)
    def either(rows: pl.DataFrame | None) -> None:
        seen["either"] = type(rows)

    @dg.asset(ins={"rows": dg.AssetIn([database, "stored"], dagster_type=dg.Any)})
    def typed(rows) -> None:  # type: ignore[no-untyped-def]
        seen["typed"] = type(rows)

    assets = [stored, plain, anything, optional, either, typed]
    assert dg.materialize(assets, resources={"io_manager": FlussIOManager(fluss=fluss)}).success
    assert seen == {
        "plain": pa.Table,
        "anything": pa.Table,
        "optional": pd.DataFrame,
        "either": pl.DataFrame,
        "typed": pa.Table,
    }


def test_what_is_no_frame_is_said_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"sales/orders: list\[int\] is not a kind of frame"):
        wanted_frame(list[int], "sales/orders")
    with pytest.raises(ConfigError, match="annotate the input with one"):
        wanted_frame(pd.DataFrame | pa.Table, "sales/orders")
