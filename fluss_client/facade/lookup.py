"""Look-ups as the guides use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fluss_client.aio import lookup as core
from fluss_client.aio.lookup_keys import KeyLike
from fluss_client.facade.handle import Handle


class Lookuper:
    """Looks rows up by primary key."""

    def __init__(self, lookuper: core.Lookuper) -> None:
        self._core = lookuper

    def lookup(self, pk: KeyLike) -> Handle[dict[str, Any] | None]:
        """The row of a key, or None."""
        return Handle.start(self._core.lookup(pk), "lookup")

    def lookup_many(
        self, keys: pa.Table | pa.RecordBatch | Sequence[KeyLike]
    ) -> Handle[pa.Table | list[dict[str, Any] | None]]:
        """One answer per key, in order: a list for a list, an Arrow table for Arrow keys."""
        return Handle.start(self._core.lookup_many(keys), "lookup_many")


class PrefixLookuper:
    """Looks up all rows whose primary key begins with a prefix."""

    def __init__(self, lookuper: core.PrefixLookuper) -> None:
        self._core = lookuper

    def lookup(self, prefix: KeyLike) -> Handle[list[dict[str, Any]]]:
        """All rows with that prefix; empty when there are none."""
        return Handle.start(self._core.lookup(prefix), "prefix lookup")


class TablePrefixLookup:
    """Builds a `PrefixLookuper`."""

    def __init__(self, builder: core.TablePrefixLookup) -> None:
        self._core = builder

    def create_lookuper(self) -> PrefixLookuper:
        """The look-up."""
        return PrefixLookuper(self._core.create_lookuper())


class TableLookup(Lookuper):
    """Builds a `Lookuper`, and is one itself for code after the older guide."""

    def __init__(self, builder: core.TableLookup) -> None:
        super().__init__(builder.create_lookuper())
        self._builder = builder

    def create_lookuper(self) -> Lookuper:
        """A look-up by the whole primary key."""
        return Lookuper(self._builder.create_lookuper())

    def lookup_by(self, column_names: Sequence[str]) -> TablePrefixLookup:
        """A look-up by a prefix: the partition columns and the bucket key."""
        return TablePrefixLookup(self._builder.lookup_by(column_names))
