"""Makes tables for contract tests and reads them whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

import fluss_client as fluss
from tests.waiting import WAIT_S, wait_until

POLL_MS = 2_000
PAUSE_S = 0.02
_numbers = itertools.count()

T = TypeVar("T")
Change = tuple[str, dict[str, Any]]


def done(handle: fluss.Handle[Any]) -> Any:
    """The result of a call."""
    return handle.result()


def eventually(look: Callable[[], T], until: Callable[[T], bool], seconds: float = WAIT_S) -> T:
    """What `look` gives as soon as it satisfies `until`."""
    last: list[T] = []

    def satisfies() -> bool:
        last[:] = [look()]
        return until(last[0])

    wait_until("it", satisfies, seconds, pause_s=PAUSE_S, details=lambda: f"last seen: {last[0]!r}")
    return last[0]


class Tables:
    """The tables of one database; their names are unique in the run."""

    def __init__(
        self, connection: fluss.FlussConnection, admin: fluss.FlussAdmin, database: str
    ) -> None:
        self.connection = connection
        self.admin = admin
        self.database = database

    def path(self) -> fluss.TablePath:
        """A path that no table has."""
        return fluss.TablePath(self.database, f"t{next(_numbers)}")

    def create(
        self,
        schema: pa.Schema | fluss.Schema | Mapping[str, pa.DataType],
        primary_keys: Sequence[str] | None = None,
        *,
        buckets: int = 1,
        partitions: Sequence[Mapping[str, str]] = (),
        **descriptor: Any,
    ) -> fluss.FlussTable:
        """Create a table with its partitions, and open it."""
        if not isinstance(schema, fluss.Schema):
            arrow = schema if isinstance(schema, pa.Schema) else pa.schema(list(schema.items()))
            schema = fluss.Schema(arrow, primary_keys=primary_keys)
        path = self.path()
        made = fluss.TableDescriptor(schema, bucket_count=buckets, **descriptor)
        done(self.admin.create_table(path, made))
        for spec in partitions:
            done(self.admin.create_partition(path, spec))
        return self.open(path)

    def open(self, path: fluss.TablePath) -> fluss.FlussTable:
        """The table as it is now."""
        table: fluss.FlussTable = done(self.connection.get_table(path))
        return table

    def reopen(self, table: fluss.FlussTable) -> fluss.FlussTable:
        """The same table, with the schema that it has now."""
        return self.open(table.get_table_path())

    def append(self, table: fluss.FlussTable, rows: pa.Table | Sequence[Any]) -> None:
        """Append rows and wait for the acknowledgement."""
        with table.new_append().create_writer() as writer:
            _write(writer.append, writer.write_arrow, rows)

    def upsert(
        self,
        table: fluss.FlussTable,
        rows: pa.Table | Sequence[Any],
        columns: Sequence[str] | None = None,
    ) -> None:
        """Upsert rows, or some of their columns, and wait for the acknowledgement."""
        with table.new_upsert(columns).create_writer() as writer:
            _write(writer.upsert, writer.write_arrow, rows)

    def delete(self, table: fluss.FlussTable, keys: Sequence[Any]) -> None:
        """Delete by keys and wait for the acknowledgement."""
        with table.new_upsert().create_writer() as writer:
            for key in keys:
                writer.delete(key)

    def subscribe(self, scanner: fluss.LogScanner, table: fluss.FlussTable) -> None:
        """Subscribe to every bucket of the table from its beginning."""
        info = table.get_table_info()
        if not info.is_partitioned():
            scanner.subscribe_buckets(dict.fromkeys(range(info.num_buckets), -2))
            return
        partitions = done(self.admin.list_partition_infos(info.table_path))
        scanner.subscribe_partition_buckets(
            {(p.partition_id, b): -2 for p in partitions for b in range(info.bucket_count_of(p))}
        )

    def log(self, table: fluss.FlussTable, columns: Sequence[str] | None = None) -> pa.Table:
        """The whole log as Arrow, by bucket and offset."""
        scan = table.new_scan()
        if columns is not None:
            scan = scan.project_by_name(columns)
        with done(scan.create_record_batch_log_scanner()) as scanner:
            self.subscribe(scanner, table)
            found: pa.Table = scanner.to_arrow()
        return found

    def records(self, table: fluss.FlussTable, count: int) -> list[fluss.ScanRecord]:
        """The first `count` records of the log, and proof that there are no more."""
        found: list[fluss.ScanRecord] = []
        with done(table.new_scan().create_log_scanner()) as scanner:
            self.subscribe(scanner, table)
            while len(found) < count:
                polled = scanner.poll(POLL_MS)
                assert polled.count(), f"{len(found)} records of {count}: {found[-5:]}"
                found.extend(polled)
            found.extend(scanner.poll(0))
        assert len(found) == count, found
        return found

    def changes(self, table: fluss.FlussTable, count: int) -> list[Change]:
        """The first `count` changes as `("+I", row)` pairs."""
        return [(r.change_type.short_string(), r.row) for r in self.records(table, count)]

    def lookup(self, table: fluss.FlussTable, key: Any) -> dict[str, Any] | None:
        """The row of a key."""
        row: dict[str, Any] | None = done(table.new_lookup().create_lookuper().lookup(key))
        return row


def _write(write_row: Any, write_arrow: Any, rows: pa.Table | Sequence[Any]) -> None:
    if isinstance(rows, pa.Table):
        write_arrow(rows)
        return
    for row in rows:
        write_row(row)
