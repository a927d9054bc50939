"""Mistakes that a type checker must find; each line that has one says which."""

from __future__ import annotations

import fluss_client as fluss


def wrong(connection: fluss.FlussConnection, admin: fluss.FlussAdmin) -> None:
    path = fluss.TablePath("db")  # error: call-arg
    admin.create_table("db.t", None)  # error: arg-type
    names: list[int] = admin.list_databases().result()  # error: assignment
    connection.get_tabel(path)  # error: attr-defined
    lookuper = connection.get_table(path).result().new_lookup()
    row: str = lookuper.lookup((1,)).result()  # error: assignment
    unawaited: fluss.FlussAdmin = connection.get_admin()  # error: assignment
    print(names, row, unawaited)
