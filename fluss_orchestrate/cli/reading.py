"""Opening what `read` was asked for: each source as a schema and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.cli.failures import CommandError, UsageError
from fluss_orchestrate.cli.parsing import path_of
from fluss_orchestrate.cli.progress import Meter

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss_client import FlussConnection, TableInfo


@dataclass(frozen=True)
class Wanted:
    """Which rows of a table."""

    table: str
    source: str
    columns: Sequence[str] | None = None
    metadata: bool = False
    partition: str | None = None
    start: Any = "earliest"
    until: Any = None
    limit: int | None = None


@dataclass(frozen=True)
class Rows:
    """Rows that can be read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    tells_progress: bool = False
    """Whether the meter hears of it from the reader itself."""
    total: int | None = None
    """How many rows there are about, where that is cheap to know."""


def open_source(connection: FlussConnection, wanted: Wanted, meter: Meter | None = None) -> Rows:
    """The rows of the source, not read yet."""
    info = connection.get_admin().result().get_table_info(path_of(wanted.table)).result()
    if wanted.source == "lake":
        return _lake(connection, info, wanted)
    if wanted.source == "state":
        return _state(connection, info, wanted)
    is_key_table = info.has_primary_key()
    if wanted.source == "changelog" and not is_key_table:
        raise UsageError(f"{wanted.table} has no primary key, hence no changelog: read its log")
    return _log(connection, wanted, meter, with_change=is_key_table)


def _log(
    connection: FlussConnection, wanted: Wanted, meter: Meter | None, with_change: bool
) -> Rows:
    from fluss_orchestrate.core.incremental.once import plan_once, read_once
    from fluss_orchestrate.core.incremental.reading import ScanProgress
    from fluss_orchestrate.core.plan import METADATA_COLUMNS

    # A changelog without what happened to its rows would say nothing.
    extra = METADATA_COLUMNS if wanted.metadata else ("_change_type",) if with_change else ()
    plan = plan_once(
        connection,
        wanted.table,
        wanted.start,
        "latest" if wanted.until is None else wanted.until,
        wanted.columns,
        extra,
        wanted.partition,
    )

    def tell(now: ScanProgress) -> None:
        assert meter is not None
        meter.at(now.rows, now.offsets, now.offsets_total)

    reading = read_once(connection, plan, None if meter is None else tell)
    return Rows(reading.schema, reading.batches(), tells_progress=True)


def _state(connection: FlussConnection, info: TableInfo, wanted: Wanted) -> Rows:
    from fluss_orchestrate.core.lake.state import read_table

    if wanted.metadata:
        raise UsageError("--metadata is for --source log, changelog and lake")
    if info.has_primary_key() and wanted.limit is not None and wanted.until is None:
        # A few rows of a large table, without reading all of it.
        return _some_keys(connection, info, wanted)
    reader = read_table(
        connection, wanted.table, wanted.columns, wanted.partition, as_of=wanted.until
    )
    total = _row_count(connection, info) if wanted.partition is None else None
    return Rows(reader.schema, iter(reader), total=total)


def _row_count(connection: FlussConnection, info: TableInfo) -> int | None:
    """What the servers count; some tables are not counted."""
    from fluss_client.errors import FlussError

    try:
        stats = connection.get_admin().result().get_table_stats(info.table_path).result()
    except FlussError:
        return None
    return sum(stats.values())


def _some_keys(connection: FlussConnection, info: TableInfo, wanted: Wanted) -> Rows:
    import pyarrow as pa

    from fluss_client import TableBucket

    names = list(wanted.columns) if wanted.columns is not None else info.get_column_names()
    schema = pa.schema([info.schema.arrow.field(info.schema.column(n).name) for n in names])
    table = connection.get_table(info.table_path).result()
    places: list[int | None] = [None]
    if info.is_partitioned():
        infos = connection.get_admin().result().list_partition_infos(info.table_path).result()
        places = [p.partition_id for p in infos if wanted.partition in (None, p.partition_name)]
        if wanted.partition is not None and not places:
            raise CommandError(f"{wanted.table} has no partition '{wanted.partition}'")

    def batches() -> Iterator[pa.RecordBatch]:
        left = wanted.limit or 0
        for partition_id in places:
            for bucket in range(info.num_buckets):
                if left <= 0:
                    return
                place = TableBucket(info.table_id, bucket, partition_id=partition_id)
                scan = table.new_scan().project_by_name(names).limit(left)
                for batch in scan.create_bucket_batch_scanner(place).to_arrow().to_batches():
                    left -= batch.num_rows
                    yield batch

    return Rows(schema, batches())


def _lake(connection: FlussConnection, info: TableInfo, wanted: Wanted) -> Rows:
    import pyarrow as pa

    from fluss_orchestrate.core.lake.catalog import load_lake_table
    from fluss_orchestrate.core.lake.file_scan import read_scan

    if wanted.partition is not None:
        raise UsageError("--partition is not for --source lake")
    lake = load_lake_table(info, connection.config.resolved_alias())
    known = [field.name for field in lake.schema().fields]
    own = [n for n in known if wanted.metadata or not n.startswith("__")]
    chosen = own if wanted.columns is None else list(wanted.columns)
    missing = [n for n in chosen if n not in known]
    if missing:
        raise CommandError(f"the lake of {wanted.table} has no column '{missing[0]}'")
    reader = read_scan(lake.scan(selected_fields=tuple(chosen)), lake, wanted.limit)
    schema = pa.schema([reader.schema.field(name) for name in chosen])
    total = int(lake.scan().count()) if wanted.limit is None else wanted.limit
    return Rows(schema, (batch.select(chosen) for batch in reader), total=total)
