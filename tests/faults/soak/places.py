"""The tables, sinks and mirrors of a soak: opened alike by its programs and by its judge."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

import fluss_client as fluss
from fluss_orchestrate import FlussCheckpointStore, IncrementalScan, JobResult, mirror_table
from fluss_orchestrate import run_increment as run_once
from fluss_orchestrate.core.sinks import FlussTableSink, IcebergSink, ParquetSink, Sink, SqlSink
from tests.contract.tables import done

DATABASE = "soak"
LOG = fluss.TablePath(DATABASE, "log")
KEYS = fluss.TablePath(DATABASE, "keys")
LOG_COPY = fluss.TablePath(DATABASE, "log_copy")
KEYS_COPY = fluss.TablePath(DATABASE, "keys_copy")
PLACE_COLUMNS = ("_bucket", "_offset")
BUCKETS = 3
LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
CALM = {"retry-timeout": "180s", "request-timeout": "30s"}
"""Longer than any fault lasts."""
OFFSETS_MAX = 50_000
ICEBERG = "soak.rows"


@dataclass(frozen=True)
class Places:
    """Where everything of one soak is."""

    folder: Path
    bootstrap_servers: str
    replicas: int

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The places that another process has saved."""
        return cls(folder, **json.loads((folder / "places.json").read_text()))

    def save(self) -> None:
        """Write the places down for other processes."""
        values = {key: value for key, value in asdict(self).items() if key != "folder"}
        (self.folder / "places.json").write_text(json.dumps(values))

    def connect(self, address: str | None = None) -> fluss.FlussConnection:
        """A connection over the lines that may fail, or to another address."""
        settings = {"bootstrap.servers": address or self.bootstrap_servers, **CALM}
        connection: fluss.FlussConnection = done(
            fluss.FlussConnection.create(fluss.Config(settings))
        )
        return connection

    def store(self, connection: fluss.FlussConnection) -> FlussCheckpointStore:
        """Where checkpoints are kept."""
        return FlussCheckpointStore(connection, DATABASE, "checkpoints", replicas=self.replicas)

    def sink(self, kind: str, connection: fluss.FlussConnection, form: str) -> Sink:
        """A sink of the log (`append`) or a mirror of the key table (`mirror`)."""
        place = self.folder / f"{kind}-{form}"
        place.mkdir(exist_ok=True)
        if kind == "parquet":
            return ParquetSink(place)
        if kind == "sql":
            return SqlSink(f"sqlite:///{place}/rows.db", "rows", form=form)
        if kind == "iceberg":
            return IcebergSink(catalog_of(place), ICEBERG, form=form)
        path = LOG_COPY if form == "append" else KEYS_COPY
        return FlussTableSink(connection, path, form=form, ledger_replicas=self.replicas)

    def increment(self, kind: str, connection: fluss.FlussConnection, run_key: str) -> JobResult:
        """Bring a sink up to the end of the log."""
        scan = IncrementalScan(
            connection,
            str(LOG),
            f"increment-{kind}",
            self.store(connection),
            metadata_columns=PLACE_COLUMNS,
        )
        sink = self.sink(kind, connection, "append")
        return run_once(scan, sink, run_key, max_offsets=OFFSETS_MAX)

    def mirror(self, kind: str, connection: fluss.FlussConnection, run_key: str) -> JobResult:
        """Bring a mirror up to the current rows of the key table."""
        return mirror_table(
            connection,
            str(KEYS),
            self.sink(kind, connection, "mirror"),
            run_key,
            checkpoint=f"mirror-{kind}",
            store=self.store(connection),
        )


def catalog_of(folder: Path) -> dict[str, str]:
    """The catalog of an Iceberg sink."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def create_tables(connection: fluss.FlussConnection) -> None:
    """Make the tables; those that are written have a lake."""
    admin = done(connection.get_admin())
    done(admin.create_database(DATABASE))

    def create(path: fluss.TablePath, columns: dict[str, Any], **options: Any) -> None:
        keys = options.pop("primary_keys", None)
        schema = fluss.Schema(pa.schema(list(columns.items())), primary_keys=keys)
        described = fluss.TableDescriptor(schema, bucket_count=BUCKETS, **options)
        done(admin.create_table(path, described))

    pair = {"id": pa.int64(), "n": pa.int64()}
    create(LOG, {"n": pa.int64(), "text": pa.string()}, bucket_keys=["n"], properties=LAKE)
    create(KEYS, pair, primary_keys=["id"], properties=LAKE)
    copied = {"n": pa.int64(), "text": pa.string(), "_bucket": pa.int32(), "_offset": pa.int64()}
    create(LOG_COPY, copied)
    create(KEYS_COPY, pair, primary_keys=["id"])
