"""`FlussIOManager`: every kind of frame, write modes, partitions, ranges, policies, metadata."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError, RowError
from fluss_orchestrate.core.sinks.errors import SinkSchemaError
from fluss_orchestrate.dagster import FlussIOManager, FlussResource, fluss_time_partitions
from fluss_orchestrate.dagster.work import row_count, table_info
from tests.dagster_integration.tables import log_ids, make_table, orders
from tests.orchestrate.rescaler import Rescaler

DAYS = fluss_time_partitions("day", "20261101")


def stored(result: dg.ExecuteInProcessResult, node: str) -> dict[str, Any]:
    found = result.asset_materializations_for_node(node)
    return {key: value.value for key, value in found[-1].metadata.items()}


@pytest.fixture
def resources(fluss: FlussResource) -> dict[str, Any]:
    return {"io_manager": FlussIOManager(fluss=fluss)}


FRAMES: dict[str, tuple[type, Callable[[pa.Table], Any], Callable[[Any], pa.Table]]] = {
    "arrow": (pa.Table, lambda t: t, lambda f: f),
    "reader": (pa.RecordBatchReader, lambda t: t.to_reader(7), lambda f: f.read_all()),
    "pandas": (pd.DataFrame, lambda t: t.to_pandas(), lambda f: pa.Table.from_pandas(f)),
    "polars": (pl.DataFrame, pl.from_arrow, lambda f: f.to_arrow()),
    "lazy": (pl.LazyFrame, lambda t: pl.from_arrow(t).lazy(), lambda f: f.collect().to_arrow()),
}


def frame_assets(kind: str, frames: Any, database: str, loaded: dict[str, pa.Table]) -> list[Any]:
    """An asset that returns a kind of frame, and one that wants it back."""
    type_, build, back = frames

    @dg.asset(name=kind, key_prefix=database)
    def store() -> Any:
        return build(orders(20))

    @dg.asset(name=f"use_{kind}", ins={"frame": dg.AssetIn([database, kind])})
    def use(frame: type_) -> None:
        assert isinstance(frame, type_)
        loaded[kind] = back(frame)

    return [store, use]


def test_frames_of_every_kind(
    database: str, resources: dict[str, Any], connection: FlussConnection
) -> None:
    loaded: dict[str, pa.Table] = {}
    assets = [a for k, f in FRAMES.items() for a in frame_assets(k, f, database, loaded)]
    result = dg.materialize(assets, resources=resources)
    for kind in FRAMES:
        assert sorted(loaded[kind]["id"].to_pylist()) == list(range(20)), kind
        assert log_ids(connection, TablePath(database, kind)) == list(range(20))
    told = stored(result, f"{database}__arrow")
    assert told["dagster/table_name"] == f"{database}.arrow"
    assert told["dagster/row_count"] == 20
    assert told["fluss/write_mode"] == "append"
    assert [c.type for c in told["dagster/column_schema"].columns] == ["bigint NOT NULL", "string"]


def test_what_is_stored_has_a_data_version(
    database: str, resources: dict[str, Any], instance: dg.DagsterInstance
) -> None:
    @dg.asset(key_prefix=database)
    def stored() -> pa.Table:
        return orders(20)

    @dg.asset(key_prefix=database)
    def named() -> dg.Output[pa.Table]:
        return dg.Output(orders(20), data_version=dg.DataVersion("the asset's own"))

    @dg.asset(ins={"rows": dg.AssetIn([database, "stored"])})
    def after(rows: pa.Table) -> None: ...

    versions = []
    for _ in range(2):
        done = dg.materialize([stored, named, after], instance=instance, resources=resources)
        told = {
            node: done.asset_materializations_for_node(node)[0]
            for node in (f"{database}__stored", f"{database}__named", "after")
        }
        tags = {node: event.tags or {} for node, event in told.items()}
        versions.append(tags[f"{database}__stored"]["dagster/data_version"])
        assert tags[f"{database}__named"]["dagster/data_version"] == "the asset's own"
        assert tags["after"][f"dagster/input_data_version/{database}/stored"] == versions[-1]
    assert versions[0] != versions[1], "a new run has appended more"


def test_lazy_frames_read_only_what_they_need(
    database: str, fluss: FlussResource, connection: FlussConnection
) -> None:
    path = make_table(connection, TablePath(database, "orders"))
    io = FlussIOManager(fluss=fluss)
    with dg.build_output_context(asset_key=[database, "orders"], run_id="one") as context:
        io.handle_output(context, orders(20))
    loading = dg.build_input_context(
        asset_key=[database, "orders"],
        dagster_type=dg.DagsterType(lambda _, value: True, "lazy", typing_type=pl.LazyFrame),
        definition_metadata={"columns": ["id"]},
    )
    lazy = io.load_input(loading)
    assert lazy.collect_schema().names() == ["id"]
    assert lazy.filter(pl.col("id") > 15).collect()["id"].sort().to_list() == [16, 17, 18, 19]
    assert lazy.head(3).collect().height == 3
    assert log_ids(connection, path) == list(range(20))


def test_a_step_that_is_tried_again_writes_once(
    database: str, resources: dict[str, Any], connection: FlussConnection
) -> None:
    tries: list[int] = []

    class Failing(FlussIOManager):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            super().handle_output(context, obj)
            tries.append(1)
            if len(tries) < 3:
                raise RuntimeError("after the rows were written")

    @dg.asset(key_prefix=database, retry_policy=dg.RetryPolicy(max_retries=2))
    def written() -> pa.Table:
        return orders(25)

    failing = Failing(fluss=resources["io_manager"].fluss)
    assert dg.materialize([written], resources={"io_manager": failing}).success
    assert len(tries) == 3
    assert log_ids(connection, TablePath(database, "written")) == list(range(25))


def test_key_tables_are_upserted_and_created_as_told(
    database: str, resources: dict[str, Any], connection: FlussConnection, fluss: FlussResource
) -> None:
    @dg.asset(key_prefix=database, metadata={"primary_key": ["id"], "buckets": 3})
    def keyed() -> pd.DataFrame:
        return orders(10).to_pandas()

    for _ in range(2):
        told = stored(dg.materialize([keyed], resources=resources), f"{database}__keyed")
        assert told["fluss/write_mode"] == "upsert"
        assert told["dagster/row_count"] == 10
    info = fluss.table_info(f"{database}.keyed")
    assert info.get_primary_keys() == ["id"]
    assert info.num_buckets == 3


def test_partitions_ranges_and_mapped_inputs(
    database: str, resources: dict[str, Any], connection: FlussConnection, fluss: FlussResource
) -> None:
    seen: list[tuple[str, list[int]]] = []

    @dg.asset(
        key_prefix=database,
        partitions_def=DAYS,
        metadata={"partition_expr": "day"},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def daily(context: dg.AssetExecutionContext) -> pa.Table:
        days = context.partition_keys
        return pa.table({"id": [int(d) for d in days], "day": list(days)})

    @dg.asset(
        partitions_def=DAYS,
        ins={"rows": dg.AssetIn([database, "daily"])},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def one_day(context: dg.AssetExecutionContext, rows: pa.Table) -> None:
        seen.append((context.partition_key, rows["id"].to_pylist()))

    span = {
        "dagster/asset_partition_range_start": "20261102",
        "dagster/asset_partition_range_end": "20261104",
    }
    result = dg.materialize([daily], resources=resources, tags=span)
    events = result.asset_materializations_for_node(f"{database}__daily")
    assert [e.partition for e in events] == ["20261102", "20261103", "20261104"]
    assert not any("dagster/row_count" in e.metadata for e in events)
    assert not any("dagster/partition_row_count" in e.metadata for e in events)
    one = dg.materialize([daily, one_day], resources=resources, partition_key="20261105")
    assert stored(one, f"{database}__daily")["dagster/partition_row_count"] == 1
    assert seen == [("20261105", [20261105])]
    path = TablePath(database, "daily")
    assert log_ids(connection, path) == [20261102, 20261103, 20261104, 20261105]
    assert fluss.table_info(path).get_partition_keys() == ["day"]

    @dg.asset(ins={"rows": dg.AssetIn([database, "daily"])})
    def all_days(rows: pa.Table) -> None:
        seen.append(("all", sorted(rows["id"].to_pylist())))

    dg.materialize([daily, all_days], selection=[all_days], resources=resources)
    assert seen[-1] == ("all", [20261102, 20261103, 20261104, 20261105])


def test_two_dimensions(database: str, resources: dict[str, Any], fluss: FlussResource) -> None:
    both = dg.MultiPartitionsDefinition(
        {"day": DAYS, "region": dg.StaticPartitionsDefinition(["eu", "us"])}
    )
    seen: list[Any] = []

    @dg.asset(
        key_prefix=database,
        partitions_def=both,
        metadata={"partition_expr": {"day": "day", "region": "area"}},
    )
    def sales(context: dg.AssetExecutionContext) -> pa.Table:
        keys = context.partition_key.keys_by_dimension
        return pa.table({"id": [1, 2], "day": [keys["day"]] * 2, "area": [keys["region"]] * 2})

    @dg.asset(partitions_def=both, ins={"rows": dg.AssetIn([database, "sales"])})
    def one(rows: pa.Table) -> None:
        seen.append(rows.to_pylist())

    for region in ("eu", "us"):
        key = dg.MultiPartitionKey({"day": "20261103", "region": region})
        assert dg.materialize([sales, one], resources=resources, partition_key=key).success
    assert [{r["area"] for r in rows} for rows in seen] == [{"eu"}, {"us"}]
    assert [len(rows) for rows in seen] == [2, 2]
    assert fluss.table_info(f"{database}.sales").get_partition_keys() == ["day", "area"]

    @dg.asset(key_prefix=database, partitions_def=both, metadata={"partition_expr": {"day": "day"}})
    def forgot() -> pa.Table:
        return pa.table({"id": [1]})

    with pytest.raises(Exception, match="says nothing about dimension region"):
        dg.materialize([forgot], resources=resources, partition_key=key)


@pytest.mark.parametrize("fluss_kind", ["embedded"], indirect=True)
@pytest.mark.parametrize("keys", [None, ["id", "day"]], ids=["log", "keys"])
def test_partitions_of_a_rescaled_table(
    database: str,
    resources: dict[str, Any],
    connection: FlussConnection,
    keys: list[str] | None,
    fluss_kind: str,
) -> None:
    """Partitions are written, replaced and loaded by their own bucket counts (embedded: 0.9.1
    cannot change them)."""
    seen: dict[str, list[int]] = {}
    options = {"partition_expr": "day", "buckets": 2, "bucket_keys": ["id"]}

    @dg.asset(
        key_prefix=database,
        partitions_def=DAYS,
        metadata=options | ({} if keys is None else {"primary_key": keys}),
    )
    def daily(context: dg.AssetExecutionContext) -> pa.Table:
        day = context.partition_key
        return pa.table({"id": list(range(40)), "day": [day] * 40, "v": [day] * 40})

    @dg.asset(partitions_def=DAYS, ins={"rows": dg.AssetIn([database, "daily"])})
    def load(context: dg.AssetExecutionContext, rows: pa.Table) -> None:
        seen[context.partition_key] = sorted(rows["id"].to_pylist())

    path = TablePath(database, "daily")

    def run(day: str) -> None:
        assert dg.materialize([daily, load], resources=resources, partition_key=day).success

    run("20261102")
    rescaler = Rescaler(connection, path, "20261102")
    for day, count in (("20261103", 5), ("20261104", 3)):
        rescaler.rescale(count)
        run(day)
    # A log's partition is dropped and made again, with the count of now.
    rescaler.rescale(4)
    run("20261102")
    assert seen == {day: list(range(40)) for day in ("20261102", "20261103", "20261104")}
    admin = connection.get_admin().result()
    counts = {p.partition_name: p.bucket_count for p in admin.list_partition_infos(path).result()}
    first = 4 if keys is None else 2
    assert counts == {"20261102": first, "20261103": 5, "20261104": 3}
    if keys is not None:
        lookuper = connection.get_table(path).result().new_lookup().create_lookuper()
        for day in seen:
            assert lookuper.lookup({"id": 7, "day": day}).result() is not None


def test_dynamic_keys_over_several_columns(
    database: str, resources: dict[str, Any], instance: dg.DagsterInstance
) -> None:
    names = dg.DynamicPartitionsDefinition(name="places")
    instance.add_dynamic_partitions("places", ["eu$berlin$x", "eu$paris$y"])
    seen: list[Any] = []

    @dg.asset(key_prefix=database, partitions_def=names, metadata={"partition_expr": "a,b,c"})
    def places(context: dg.AssetExecutionContext) -> pa.Table:
        a, b, c = context.partition_key.split("$")
        return pa.table({"id": [1], "a": [a], "b": [b], "c": [c]})

    @dg.asset(partitions_def=names, ins={"rows": dg.AssetIn([database, "places"])})
    def one(rows: pa.Table) -> None:
        seen.append(rows["b"].to_pylist())

    for key in ("eu$berlin$x", "eu$paris$y"):
        given = {"resources": resources, "partition_key": key, "instance": instance}
        assert dg.materialize([places, one], **given).success
    assert seen == [["berlin"], ["paris"]]


def test_partitions_in_a_table_without_partitions(
    database: str, resources: dict[str, Any], connection: FlussConnection
) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    make_table(connection, TablePath(database, "flat"), schema)
    seen: list[list[int]] = []

    @dg.asset(key_prefix=database, partitions_def=DAYS, metadata={"partition_expr": "at"})
    def flat(context: dg.AssetExecutionContext) -> pa.Table:
        day = int(context.partition_key[-2:])
        at = datetime(2026, 11, day, 12, tzinfo=UTC)
        return pa.table({"id": [day], "at": [at]}, schema)

    @dg.asset(partitions_def=DAYS, ins={"rows": dg.AssetIn([database, "flat"])})
    def one(rows: pa.Table) -> None:
        seen.append(rows["id"].to_pylist())

    for day in ("20261102", "20261103"):
        assert dg.materialize([flat, one], resources=resources, partition_key=day).success
    assert seen == [[2], [3]]


@pytest.mark.parametrize("type_", [pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.date32()])
def test_partitions_by_a_column_of_times(
    type_: pa.DataType, database: str, resources: dict[str, Any], connection: FlussConnection
) -> None:
    """The first write makes a table that later ones can use, whatever the partition's key is."""
    seen: list[list[int]] = []
    days = [0]

    @dg.asset(key_prefix=database, partitions_def=DAYS, metadata={"partition_expr": "at"})
    def timed(context: dg.AssetExecutionContext) -> pa.Table:
        day = int(context.partition_key[-2:]) + days[0]
        at = pa.array([datetime(2026, 11, day, hour, 30) for hour in (0, 23)])
        return pa.table({"id": [day, day + 100], "at": at.cast(pa.timestamp("us")).cast(type_)})

    @dg.asset(partitions_def=DAYS, ins={"rows": dg.AssetIn([database, "timed"])})
    def one(rows: pa.Table) -> None:
        seen.append(sorted(rows["id"].to_pylist()))

    for day in ("20261102", "20261103"):
        assert dg.materialize([timed, one], resources=resources, partition_key=day).success
    assert seen == [[2, 102], [3, 103]]
    info = connection.get_admin().result().get_table_info(TablePath(database, "timed")).result()
    assert list(info.partition_keys) == (["at"] if pa.types.is_date(type_) else [])
    days[0] = 1
    with pytest.raises(RowError, match=r"rows of partition 2026-11-05.* came in a run of 2026110"):
        dg.materialize([timed], resources=resources, partition_key="20261104")


def test_what_cannot_be_partitioned_so_leaves_no_table(
    database: str, resources: dict[str, Any], connection: FlussConnection
) -> None:
    def asset(**metadata: str) -> dg.AssetsDefinition:
        @dg.asset(key=[database, "timed"], partitions_def=DAYS, metadata=metadata)
        def timed() -> pa.Table:
            return pa.table({"id": [1], "at": [datetime(2026, 11, 2)]})

        return timed

    for metadata, said in (
        ({"partition_expr": "at", "write_mode": "overwrite_partition"}, "at has many"),
        ({"partition_expr": "when"}, "has no column when, which partition_expr"),
    ):
        with pytest.raises(ConfigError, match=said):
            dg.materialize([asset(**metadata)], resources=resources, partition_key="20261102")
        assert (
            not connection.get_admin().result().table_exists(TablePath(database, "timed")).result()
        )


def test_overwriting_a_partition(
    database: str, resources: dict[str, Any], connection: FlussConnection
) -> None:
    batch = [3]

    @dg.asset(
        key_prefix=database,
        partitions_def=DAYS,
        metadata={"partition_expr": "day", "write_mode": "overwrite_partition"},
    )
    def daily(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"id": list(range(batch[0])), "day": [context.partition_key] * batch[0]})

    path = TablePath(database, "daily")
    for count in (3, 2, 0):
        batch[0] = count
        told = stored(
            dg.materialize([daily], resources=resources, partition_key="20261103"),
            f"{database}__daily",
        )
        assert log_ids(connection, path) == list(range(count))
        assert told["dagster/partition_row_count"] == count


def test_mode_error_minds_only_rows_of_others(
    database: str, fluss: FlussResource, connection: FlussConnection
) -> None:
    tries: list[int] = []

    class Failing(FlussIOManager):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            super().handle_output(context, obj)
            tries.append(1)
            if len(tries) == 1:
                raise RuntimeError("again")

    @dg.asset(key_prefix=database, retry_policy=dg.RetryPolicy(max_retries=1))
    def once() -> pa.Table:
        return orders(4)

    resources = {"io_manager": Failing(fluss=fluss, write_mode="error")}
    assert dg.materialize([once], resources=resources).success
    with pytest.raises(Exception, match="holds 4 rows already"):
        dg.materialize([once], resources=resources)
    assert log_ids(connection, TablePath(database, "once")) == list(range(4))


@pytest.mark.parametrize("partitioned", [False, True])
def test_mode_error_finds_rows_that_servers_do_not_count(
    database: str, fluss: FlussResource, connection: FlussConnection, partitioned: bool
) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    path = make_table(
        connection,
        TablePath(database, "uncounted"),
        schema,
        primary_keys=["id", "day"],
        partition_keys=["day"] if partitioned else None,
        properties={"table.changelog.image": "WAL"},
    )
    days = dg.StaticPartitionsDefinition(["a", "b"]) if partitioned else None

    @dg.asset(key=[database, "uncounted"], partitions_def=days, metadata={"partition_expr": "day"})
    def uncounted() -> pa.Table:
        return pa.table({"id": [1], "day": ["a"]})

    options: dict[str, Any] = {"partition_key": "a"} if partitioned else {}
    resources = {"io_manager": FlussIOManager(fluss=fluss, write_mode="error")}
    run = partial(dg.materialize, [uncounted], resources=resources, **options)
    assert run().success
    assert row_count(connection, table_info(connection, path)) is None
    with pytest.raises(ConfigError, match="holds 1 rows"):
        run()


def test_columns_that_a_frame_lacks_keep_their_values(
    database: str, fluss: FlussResource, connection: FlussConnection
) -> None:
    """By the IO manager and by the resource, although the schema policy is `error`."""
    schema = pa.schema([("id", pa.int64()), ("item", pa.string()), ("count", pa.int64())])
    key = [database, "items"]
    make_table(connection, TablePath(*key), schema, primary_keys=["id"])

    @dg.asset(key=key)
    def whole() -> pa.Table:
        return pa.table({"id": [1, 2], "item": ["a", "b"], "count": [10, 20]}, schema)

    @dg.asset(key=key)
    def counts() -> pd.DataFrame:
        return pd.DataFrame({"id": [1], "count": [11]})

    @dg.asset(key=key)
    def items(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        return fluss.upsert(context, ".".join(key), pa.table({"id": [2], "item": ["B"]}))

    resources = {"io_manager": FlussIOManager(fluss=fluss), "fluss": fluss}
    for asset in (whole, counts, items):
        assert dg.materialize([asset], resources=resources).success
    rows = fluss.read_table(".".join(key)).read_all().sort_by("id").to_pylist()
    assert rows == [
        {"id": 1, "item": "a", "count": 11},
        {"id": 2, "item": "B", "count": 20},
    ]


def test_columns_that_a_table_lacks(
    database: str, fluss: FlussResource, connection: FlussConnection
) -> None:
    path = make_table(connection, TablePath(database, "orders"))
    wider = orders(3).append_column("price", pa.array([1.0, 2.0, 3.0]))

    @dg.asset(key=[database, "orders"])
    def strict() -> pa.Table:
        return wider

    with pytest.raises(SinkSchemaError, match="no column price"):
        dg.materialize([strict], resources={"io_manager": FlussIOManager(fluss=fluss)})

    @dg.asset(key=[database, "orders"])
    def adding() -> dg.Output[pa.Table]:
        return dg.Output(wider, metadata={"schema_policy": "add_columns", "fluss/rows": -1})

    told = stored(
        dg.materialize([adding], resources={"io_manager": FlussIOManager(fluss=fluss)}),
        f"{database}__orders",
    )
    assert told["fluss/rows"] == -1  # what the asset says itself is kept
    assert [c.name for c in told["dagster/column_schema"].columns] == ["id", "item", "price"]
    assert log_ids(connection, path) == [0, 1, 2]


def test_rows_of_other_partitions_empty_outputs_and_none(
    database: str, resources: dict[str, Any], connection: FlussConnection
) -> None:
    @dg.asset(key_prefix=database, partitions_def=DAYS, metadata={"partition_expr": "day"})
    def wrong() -> pa.Table:
        return pa.table({"id": [1], "day": ["20261130"]})

    with pytest.raises(Exception, match="came in a run of 20261103"):
        dg.materialize([wrong], resources=resources, partition_key="20261103")
    assert log_ids(connection, TablePath(database, "wrong")) == []

    @dg.asset(key_prefix=database)
    def empty() -> pa.Table:
        return orders(0)

    told = stored(dg.materialize([empty], resources=resources), f"{database}__empty")
    assert told["fluss/rows"] == 0 == told["dagster/row_count"]

    @dg.asset(key_prefix=database)
    def nothing() -> Any:
        return None

    with pytest.raises(Exception, match="returned None"):
        dg.materialize([nothing], resources=resources)

    @dg.asset(key_prefix=database)
    def number() -> Any:
        return 5

    with pytest.raises(Exception, match="not a kind of frame"):
        dg.materialize([number], resources=resources)

    @dg.asset
    def nowhere() -> pa.Table:
        return orders(1)

    with pytest.raises(Exception, match="names no database"):
        dg.materialize([nowhere], resources=resources)


def test_the_last_materialisation_and_some_columns(
    database: str, resources: dict[str, Any], instance: dg.DagsterInstance, fluss: FlussResource
) -> None:
    first = [0]
    seen: list[Any] = []

    @dg.asset(key_prefix=database)
    def orders_log() -> pa.Table:
        first[0] += 10
        return orders(10, first=first[0])

    last = {"read_mode": "last", "columns": ["id"]}

    @dg.asset(ins={"rows": dg.AssetIn([database, "orders_log"], metadata=last)})
    def newest(rows: pa.Table) -> None:
        seen.append(rows)

    for _ in range(2):
        dg.materialize([orders_log, newest], resources=resources, instance=instance)
    assert seen[-1].column_names == ["id"]
    assert sorted(seen[-1]["id"].to_pylist()) == list(range(20, 30))

    external = dg.AssetSpec([database, "orders_log"]).with_io_manager_key("io_manager")
    definitions = dg.Definitions(assets=[external], resources=resources)
    whole = definitions.load_asset_value([database, "orders_log"], python_type=pa.Table)
    assert sorted(whole["id"].to_pylist()) == list(range(10, 30))


def test_the_last_rows_of_a_partition_from_polars(
    database: str, resources: dict[str, Any], instance: dg.DagsterInstance
) -> None:
    count = [0]
    seen: list[list[int]] = []

    @dg.asset(key_prefix=database, partitions_def=DAYS, metadata={"partition_expr": "day"})
    def daily(context: dg.AssetExecutionContext) -> pl.DataFrame:
        count[0] += 1
        return pl.DataFrame({"id": [count[0]], "day": [context.partition_key]})

    last = {"read_mode": "last", "columns": ["id"]}

    @dg.asset(partitions_def=DAYS, ins={"rows": dg.AssetIn([database, "daily"], metadata=last)})
    def newest(rows: pl.DataFrame) -> None:
        seen.append(rows["id"].to_list())

    given: dict[str, Any] = {"resources": resources, "instance": instance}
    for day in ("20261103", "20261103", "20261104"):
        dg.materialize([daily], partition_key=day, **given)
    dg.materialize([daily, newest], selection=[newest], partition_key="20261103", **given)
    assert seen == [[2]]
