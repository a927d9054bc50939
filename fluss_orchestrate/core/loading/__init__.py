"""Loads: rows are written into a Fluss table exactly once under an id."""

from fluss_orchestrate.core.loading.errors import (
    LoadError,
    MirroredTableError,
    PinExpiredError,
    PlacedElsewhereError,
    RowsDifferError,
    RowsUsedError,
)
from fluss_orchestrate.core.loading.load import as_reader, load_is_known, load_receipt, load_rows
from fluss_orchestrate.core.loading.sources import SourceError, open_rows

__all__ = [
    "LoadError",
    "MirroredTableError",
    "PinExpiredError",
    "PlacedElsewhereError",
    "RowsDifferError",
    "RowsUsedError",
    "SourceError",
    "as_reader",
    "load_is_known",
    "load_receipt",
    "load_rows",
    "open_rows",
]
