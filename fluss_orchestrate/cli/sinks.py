"""Where `scan` brings its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.cli.connecting import key_values
from fluss_orchestrate.cli.failures import UsageError
from fluss_orchestrate.cli.output import datum
from fluss_orchestrate.cli.parsing import path_of
from fluss_orchestrate.cli.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss_orchestrate.core.sinks import Sink

FORMS = "screen, parquet:DIR, iceberg:namespace.table or fluss:database.table"


def open_sink(
    session: Session, to: str, catalog: Sequence[str], shown: list[dict[str, Any]]
) -> Sink:
    """The sink of a `--to`; rows for a screen that wants JSON are gathered in `shown`."""
    from fluss_orchestrate.core.sinks import FlussTableSink, FunctionSink, IcebergSink, ParquetSink

    kind, _, rest = to.partition(":")
    if catalog and kind != "iceberg":
        raise UsageError("--catalog is for --to iceberg:namespace.table")
    if to == "screen":
        return FunctionSink(_gather(shown) if session.as_json else _print)
    if kind == "parquet" and rest:
        return ParquetSink(rest)
    if kind == "fluss" and rest:
        return FlussTableSink(session.connection, path_of(rest), create_partitions=True)
    if kind == "iceberg" and "." in rest:
        return IcebergSink(_catalog(catalog), rest)
    raise UsageError(f"--to '{to}' is no sink: give {FORMS}")


def _catalog(given: Sequence[str]) -> Any:
    if len(given) == 1 and "=" not in given[0]:
        from fluss_client.errors import MissingExtraError

        try:
            from pyiceberg.catalog import load_catalog
        except ImportError:
            raise MissingExtraError("pyiceberg", "lake") from None
        return load_catalog(given[0])
    if not given:
        raise UsageError(
            "--to iceberg needs --catalog NAME of your pyiceberg configuration, or "
            "--catalog type=sql --catalog uri=sqlite:///... --catalog warehouse=..."
        )
    return key_values(given, "--catalog")


def _print(reader: pa.RecordBatchReader) -> None:
    """Rows as they come, tabs between the values: the whole is not known, so nothing is aligned."""
    print("\t".join(reader.schema.names))
    for batch in reader:
        for row in batch.to_pylist():
            print("\t".join(datum(value) for value in row.values()))


def _gather(rows: list[dict[str, Any]]) -> Callable[[pa.RecordBatchReader], None]:
    def take(reader: pa.RecordBatchReader) -> None:
        for batch in reader:
            rows.extend(batch.to_pylist())

    return take
