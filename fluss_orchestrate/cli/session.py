"""What most commands share: connection options, `--json`, a session, the checkpoint store."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
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

    return with_parameters(run, (*parameters_of(command, 1), *parameters_of(_shared)))


def parameters_of(command: Callable[..., None], given: int = 0) -> list[inspect.Parameter]:
    """Return the parameters of a command as options; the first `given` ones are no options."""
    hints = get_type_hints(command, include_extras=True)
    own = list(inspect.signature(command).parameters.values())[given:]
    return [p.replace(annotation=hints[p.name], kind=p.KEYWORD_ONLY) for p in own]


def with_parameters(
    run: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Return a function that shows these parameters to whoever asks for its signature."""
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    vars(run).pop("__wrapped__", None)
    return run


def _shared(
    *,
    bootstrap: BootstrapOption = None,
    profile: ProfileOption = None,
    airflow_conn: AirflowOption = None,
    client_options: ClientOption = None,
    as_json: JsonOption = False,
) -> None:
    """Return the options that every command with a connection has."""


def open_store(connection: FlussConnection, where: str | None) -> CheckpointStore:
    """Return the store: a table (`database.table`), a SQL database (a URL), or the default."""
    from fluss_orchestrate.core.checkpoints import FlussCheckpointStore, SqlCheckpointStore

    if where is None:
        return FlussCheckpointStore(connection)
    if "://" in where:
        return SqlCheckpointStore(where)
    path = path_of(where)
    return FlussCheckpointStore(connection, path.database_name, path.table_name)


def without_login(where: str) -> str:
    """Return the address of a store without its login."""
    return re.sub(r"//[^/@]*@", "//******@", where)


def existing_store(connection: FlussConnection, where: str | None) -> CheckpointStore | None:
    """Return the store if it was ever used: listing checkpoints does not create one."""
    from fluss_orchestrate.core.checkpoints import FlussCheckpointStore

    store = open_store(connection, where)
    if isinstance(store, FlussCheckpointStore):
        admin = connection.get_admin().result()
        if not admin.table_exists(store.path).result():
            return None
    return store


def known_store(connection: FlussConnection, where: str | None) -> CheckpointStore:
    """Return the store for commands that need a checkpoint.

    Raises:
        CommandError: The store was never used.
    """
    store = existing_store(connection, where)
    if store is None:
        raise CommandError(
            "there are no checkpoints here yet; a first `scan` makes one, --store names another "
            "place"
        )
    return store
