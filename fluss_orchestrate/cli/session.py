"""What most commands share: connection options, `--json`, a session, the checkpoint store."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_type_hints

from fluss_orchestrate.cli.connecting import Target, connect
from fluss_orchestrate.cli.options import (
    AirflowOption,
    BootstrapOption,
    ClientOption,
    JsonOption,
    ProfileOption,
)
from fluss_orchestrate.cli.parsing import path_of
from fluss_orchestrate.cli.presentation.failures import CommandError
from fluss_orchestrate.cli.presentation.output import Output

if TYPE_CHECKING:
    from fluss_client import FlussAdmin, FlussConnection
    from fluss_orchestrate.core.checkpoints import CheckpointStore


class Session(Output):
    """One run of a command: its answer, and a connection that is opened when it is first used."""

    def __init__(self, target: Target, as_json: bool = False) -> None:
        super().__init__(as_json)
        self.target = target
        self._connection: FlussConnection | None = None

    @property
    def connection(self) -> FlussConnection:
        """The connection to the server that the options name."""
        if self._connection is None:
            self._connection = connect(self.target)
        return self._connection

    @property
    def admin(self) -> FlussAdmin:
        """The administration of that server."""
        return self.connection.get_admin().result()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            self._connection.__exit__(exc_type, exc, traceback)
            self._connection = None


def with_session(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a `Session` as its first argument, made of options that are added here."""
    hints = get_type_hints(command, include_extras=True)
    own = list(inspect.signature(command).parameters.values())[1:]
    shared = inspect.signature(_shared, eval_str=True).parameters.values()

    @functools.wraps(command)
    def run(
        *,
        bootstrap: str | None,
        profile: str | None,
        airflow_conn: str | None,
        client_options: list[str] | None,
        as_json: bool,
        **own_options: Any,
    ) -> None:
        target = Target(bootstrap, profile, airflow_conn, tuple(client_options or ()))
        with Session(target, as_json) as session:
            command(session, **own_options)

    parameters = [p.replace(annotation=hints[p.name]) for p in own]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*parameters, *shared)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__
    return run


def _shared(
    *,
    bootstrap: BootstrapOption = None,
    profile: ProfileOption = None,
    airflow_conn: AirflowOption = None,
    client_options: ClientOption = None,
    as_json: JsonOption = False,
) -> None:
    """The options that every command with a connection has."""


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
