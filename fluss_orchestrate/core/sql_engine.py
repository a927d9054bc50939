"""SQL engines and SQL errors that show neither passwords nor rows.

SQLAlchemy's errors contain the statement's parameters, and their frames contain the arguments of
the connection. So those errors never leave the core: `hides_sql` raises a typed error instead,
outside of the handler, so that the first one is not its `__context__`. An engine that is opened
here has no password in its `url`: each new connection gets it from a closure.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from fluss_client.errors import ClientError, ConfigError, FlussError, MissingExtraError
from fluss_orchestrate.core.sinks.errors import SinkError

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Dialect, Engine
    from sqlalchemy.exc import SQLAlchemyError

LOCK_TIMEOUT_S = 60
_SECRET_WORDS = ("password", "passwd", "pwd", "secret", "token")
_STATES_WITHOUT_VALUES = ("08", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58")
"""Classes of SQLSTATE whose messages name objects, never values of rows."""
_CONTENDED_STATES = ("40001", "40P01", "55P03")


class _Explaining(Protocol):
    def _explained(self, error: SQLAlchemyError) -> FlussError: ...


S = TypeVar("S", bound=_Explaining)
T = TypeVar("T")
P = ParamSpec("P")


def hides_sql(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Raise the object's `_explained` error where the method fails with one of SQLAlchemy's.

    The frames below are cut off from a `SinkError`, too: their variables hold rows.
    """

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        from sqlalchemy.exc import SQLAlchemyError

        failure: FlussError
        try:
            return method(self, *args, **kwargs)
        except SQLAlchemyError as error:
            failure = self._explained(error)
        except SinkError as error:
            failure = error
        raise failure.with_traceback(None)

    return call


def sqlalchemy_missing() -> MissingExtraError | None:
    """Return the error that SQLAlchemy 2 is not installed, or None if it is."""
    try:
        import sqlalchemy as sa
    except ImportError:
        return MissingExtraError("SQLAlchemy", "sql")
    if sa.__version__.startswith("1."):  # Airflow 3.0 and other frameworks bring it.
        return MissingExtraError(f"SQLAlchemy 2 instead of {sa.__version__}", "sql")
    return None


class EngineSource:
    """Opens engines for one URL. No attribute contains the secrets of the URL."""

    @classmethod
    def of(cls, text: str, what: str) -> EngineSource | ClientError:
        """Return the source, or the error to raise once no frame of the caller has `text` any more.

        Args:
            text: An SQLAlchemy URL.
            what: Who needs it, for the error.
        """
        missing = sqlalchemy_missing()
        if missing is not None:
            return missing
        import sqlalchemy as sa

        try:
            url = sa.make_url(text)
            url.get_dialect()
        except sa.exc.ArgumentError:
            return ConfigError(
                f"{what} needs an SQLAlchemy URL such as sqlite:///file.db or "
                "postgresql+psycopg2://user@host/database; this is none, or its dialect is unknown"
            )
        return cls(url)

    def __init__(self, url: URL) -> None:
        import sqlalchemy as sa

        query = {key: value for key, value in url.query.items() if not _is_secret(key)}
        self.url = sa.URL.create(
            url.drivername, url.username, None, url.host, url.port, url.database, query
        )
        self._listen = _with_secrets(url) if url != self.url else None

    def open(self, **options: Any) -> Engine:
        """Return a new engine.

        Raises:
            ConfigError: The database's driver is not installed.
        """
        import sqlalchemy as sa

        try:
            engine = sa.create_engine(self.url, **options)
        except ImportError as error:
            missing = str(error)
        else:
            if self._listen is not None:
                sa.event.listen(engine, "do_connect", self._listen)
            return engine
        raise ConfigError(
            f"the driver of {self.url.drivername}:// is not installed: {missing}; install it, or "
            "name one that is there, such as postgresql+psycopg2://"
        )

    def __str__(self) -> str:
        return self.url.render_as_string()


def plain_text(dialect: Dialect, statement: str) -> str:
    """Return a statement without parameters as the database reads it.

    Args:
        dialect: The dialect that quoted the names in the statement. It doubles each percent sign
            in a name if its driver formats statements with parameters.
        statement: The statement.
    """
    doubles = dialect.paramstyle in ("format", "pyformat")
    return statement.replace("%%", "%") if doubles else statement


def execute_plainly(connection: Connection, statement: str) -> None:
    """Run a statement that has no parameters; names in it may have any characters.

    `text()` would read a colon in a name as a parameter, and the driver a percent sign.

    Args:
        connection: The connection.
        statement: The statement, whose names were quoted by the dialect of the connection.
    """
    connection.exec_driver_sql(
        plain_text(connection.dialect, statement), execution_options={"no_parameters": True}
    )


def _is_secret(key: str) -> bool:
    return any(word in key.lower() for word in _SECRET_WORDS)


def _with_secrets(url: URL) -> Callable[..., None]:
    def listen(dialect: Any, record: Any, cargs: list[Any], cparams: dict[str, Any]) -> None:
        args, params = dialect.create_connect_args(url)
        cargs[:] = args
        cparams.update(params)

    return listen


def reason(error: SQLAlchemyError) -> str:
    """Return what went wrong in the database, without values of rows and without parameters.

    Drivers put values into some messages (`Key (id)=(5) already exists`). Such errors are described
    by their name, their code, and the objects that they concern.
    """
    said = getattr(error, "orig", None)
    if said is None:
        # SQLAlchemy's own errors: the message may hold a statement, the class says enough.
        return type(error).__name__
    state = sql_state(error)
    driver = type(said).__module__.partition(".")[0]
    if driver == "sqlite3" or (driver.startswith("psycopg") and not state):
        return _first_line(said)
    name = type(said).__name__
    if not driver.startswith("psycopg"):
        code = said.args[0] if said.args and isinstance(said.args[0], int) else None
        return name if code is None else f"{name} (code {code})"
    if state.startswith(_STATES_WITHOUT_VALUES):
        return f"{_first_line(said)} (SQLSTATE {state})"
    diag = getattr(said, "diag", None)
    about = [
        f"{word} '{value}'"
        for word, value in (
            ("table", getattr(diag, "table_name", None)),
            ("column", getattr(diag, "column_name", None)),
            ("constraint", getattr(diag, "constraint_name", None)),
        )
        if value
    ]
    return f"{name} (SQLSTATE {state}){' of ' if about else ''}{', '.join(about)}"


def sql_state(error: SQLAlchemyError) -> str:
    """Return the SQLSTATE, five characters, of the database's answer; empty if there is none."""
    said = getattr(error, "orig", None)
    return str(getattr(said, "pgcode", None) or getattr(said, "sqlstate", None) or "")


def is_contended(error: SQLAlchemyError) -> bool:
    """Return whether others held a lock, so that the same call may succeed later."""
    busy = str(getattr(getattr(error, "orig", None), "sqlite_errorname", ""))
    return busy.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or (
        sql_state(error) in _CONTENDED_STATES
    )


def _first_line(said: BaseException) -> str:
    return str(said).strip().partition("\n")[0]
