"""The client's cases."""

from __future__ import annotations

from collections.abc import Callable

import fluss_client as fluss
from benchmarks.client import limit
from benchmarks.client.data import Sizes, batches, dict_rows, nbytes
from benchmarks.client.ours import Ours
from benchmarks.client.peer import Peer
from benchmarks.harness import Case, Timed


class ClientCases:
    """Prepares tables once and hands out the cases over them."""

    def __init__(self, bootstrap: str, sizes: Sizes) -> None:
        self.ours = Ours(bootstrap)
        self.peer = Peer(bootstrap)
        self.sizes = sizes
        self.rows = batches(sizes.arrow_rows)
        self.bytes = nbytes(self.rows)
        self.dicts = dict_rows(sizes.dict_rows)
        self.upserts = batches(sizes.upsert_rows)

    def close(self) -> None:
        self.peer.close()
        self.ours.close()

    def cases(self) -> list[Case]:
        return [*self._writes(), *self._reads(), *self._keys()]

    def _fresh(self, work: Callable[[fluss.TablePath], Timed], key: bool = False) -> Timed:
        path = self.ours.new_table(key=key)
        try:
            return work(path)
        finally:
            self.ours.drop(path)

    def _writes(self) -> list[Case]:
        ours, peer, connection = self.ours, self.peer, self.ours.connection
        return [
            Case(
                "append, Arrow batches",
                "B/s",
                {
                    "ours": lambda: ours.append_arrow(self.rows),
                    "pyfluss": lambda: self._fresh(
                        lambda p: peer.append_arrow(p.database_name, p.table_name, self.rows)
                    ),
                    "encode+socket": lambda: self._fresh(
                        lambda p: limit.encode_and_produce(connection, p, self.rows)
                    ),
                    "socket": lambda: self._fresh(
                        lambda p: limit.produce(connection, p, self.rows)
                    ),
                },
                "≥ 2.2x pyfluss, ≥ 0.85x encode+socket",
            ),
            Case(
                "append, dict rows",
                "rows/s",
                {
                    "ours": lambda: ours.append_rows(self.dicts),
                    "pyfluss": lambda: self._fresh(
                        lambda p: peer.append_rows(p.database_name, p.table_name, self.dicts)
                    ),
                },
                "≥ 1.2x pyfluss",
            ),
            Case(
                "upsert, dict rows",
                "rows/s",
                {
                    "ours": lambda: ours.upsert_rows(self.dicts),
                    "pyfluss": lambda: self._fresh(
                        lambda p: peer.upsert_rows(p.database_name, p.table_name, self.dicts), True
                    ),
                },
                "≥ 2x pyfluss",
            ),
            Case(
                "upsert, Arrow (peer: dict rows)",
                "rows/s",
                {
                    "ours": lambda: ours.upsert_arrow(self.upserts),
                    "pyfluss": lambda: self._fresh(
                        lambda p: peer.upsert_rows(p.database_name, p.table_name, self.dicts), True
                    ),
                    "socket": lambda: self._fresh(
                        lambda p: limit.put(connection, p, self.upserts), True
                    ),
                },
                "≥ 4x pyfluss, ≥ 0.75x socket",
            ),
        ]

    def _reads(self) -> list[Case]:
        ours, peer = self.ours, self.peer
        log = ours.new_table()
        writer = ours.table(log).new_append().create_writer()
        for batch in self.rows:
            writer.write_arrow_batch(batch)
        writer.flush().result()
        names = (log.database_name, log.table_name)
        count = self.sizes.arrow_rows
        return [
            Case(
                "scan to Arrow",
                "B/s",
                {
                    "ours": lambda: ours.scan(log, self.bytes, None),
                    "pyfluss": lambda: peer.scan(*names, self.bytes, None),
                    "socket": lambda: limit.fetch(ours.connection, log, count, self.bytes),
                },
                "≥ 4x pyfluss, ≥ 0.8x socket",
            ),
            Case(
                "scan, 1 of 4 columns",
                "rows/s",
                {
                    "ours": lambda: ours.scan(log, count, ["id"]),
                    "pyfluss": lambda: peer.scan(*names, count, ["id"]),
                },
                "≥ 2x pyfluss",
            ),
        ]

    def _keys(self) -> list[Case]:
        ours, peer, sizes = self.ours, self.peer, self.sizes
        users = ours.new_table(key=True)
        writer = ours.table(users).new_upsert().create_writer()
        for batch in self.upserts:
            writer.write_arrow_batch(batch)
        writer.flush().result()
        names = (users.database_name, users.table_name)
        return [
            Case(
                "changelog rows",
                "rows/s",
                {
                    "ours": lambda: ours.changelog(users, sizes.upsert_rows),
                    "pyfluss": lambda: peer.changelog(*names, sizes.upsert_rows),
                },
                "≥ 1.2x pyfluss",
            ),
            Case(
                "look-up, one by one",
                "keys/s",
                {
                    "ours": lambda: ours.lookup(users, sizes.lookups),
                    "pyfluss": lambda: peer.lookup(*names, sizes.peer_lookups),
                },
                "≥ 300x pyfluss",
            ),
            Case(
                "lookup_many (peer: one by one)",
                "keys/s",
                {
                    "ours": lambda: ours.lookup_many(users, sizes.many_lookups),
                    "pyfluss": lambda: peer.lookup(*names, sizes.peer_lookups),
                },
                "≥ 5,000x pyfluss",
            ),
        ]
