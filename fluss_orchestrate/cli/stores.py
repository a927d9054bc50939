"""The checkpoint store that a command works with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fluss_orchestrate.cli.parsing import path_of
from fluss_orchestrate.cli.presentation.failures import CommandError

if TYPE_CHECKING:
    from fluss_client import FlussConnection
    from fluss_orchestrate.core.checkpoints import CheckpointStore


def open_store(connection: FlussConnection, where: str | None) -> CheckpointStore:
    """A table of the cluster (`database.table`), an SQL database (a URL), or the default table."""
    from fluss_orchestrate.core.checkpoints import FlussCheckpointStore, SqlCheckpointStore

    if where is None:
        return FlussCheckpointStore(connection)
    if "://" in where:
        return SqlCheckpointStore(where)
    path = path_of(where)
    return FlussCheckpointStore(connection, path.database_name, path.table_name)


def without_login(where: str) -> str:
    """A store's place as it may be shown."""
    return re.sub(r"//[^/@]*@", "//******@", where)


def existing_store(connection: FlussConnection, where: str | None) -> CheckpointStore | None:
    """The store if it was ever used; looking at checkpoints does not create one."""
    from fluss_orchestrate.core.checkpoints import FlussCheckpointStore

    store = open_store(connection, where)
    if isinstance(store, FlussCheckpointStore):
        admin = connection.get_admin().result()
        if not admin.table_exists(store.path).result():
            return None
    return store


def known_store(connection: FlussConnection, where: str | None) -> CheckpointStore:
    """The same, for commands that need a checkpoint."""
    store = existing_store(connection, where)
    if store is None:
        raise CommandError(
            "there are no checkpoints here yet; a first `scan` makes one, --store names another "
            "place"
        )
    return store
