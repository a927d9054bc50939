"""Counting what arrived in the files themselves; no client and no receipt of ours is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class Proof:
    """How often the ids that were sent are in a table."""

    where: str
    sent: int
    rows: int
    missing: int
    doubled: int

    @property
    def holds(self) -> bool:
        """Whether every row is there exactly once."""
        return self.sent == self.rows and self.missing == 0 and self.doubled == 0

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.rows:,} rows of {self.sent:,} sent, "
            f"{self.missing:,} missing, {self.doubled:,} doubled"
        )


def prove(where: str, files: list[str], column: str, sent: int) -> Proof:
    """Read the ids (0 to `sent` - 1) out of Parquet files and count each."""
    pieces = [pq.ParquetFile(_path(file)).read([column]).column(0) for file in files]
    ids = np.concatenate([piece.to_numpy() for piece in pieces]) if pieces else np.zeros(0, int)
    counts = np.bincount(ids, minlength=sent)
    missing = int((counts[:sent] == 0).sum())
    return Proof(where, sent, len(ids), missing, int((counts > 1).sum()))


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))
