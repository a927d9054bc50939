"""The typed errors of an embedded directory, and the translation of SQLite's errors into them."""

from __future__ import annotations

import sqlite3

from fluss_client.errors import ClientError, CorruptDataError, FlussError

BUSY, READ_ONLY, IO_ERROR, CORRUPT = 5, 8, 10, 11
FULL, CANNOT_OPEN, NOT_A_DATABASE, LOCKED = 13, 14, 26, 6
_PRIMARY_CODE = 0xFF


class EmbeddedLockedError(ClientError):
    """Other processes were writing for longer than `embedded.lock-timeout`. Retry, or raise it."""

    retriable = True


class EmbeddedReadOnlyError(ClientError):
    """The directory can be read but not written. Check the permissions of its files."""


class EmbeddedStorageError(ClientError):
    """The disk is full or failed. Rows that were acknowledged before stay readable.

    Make room, then try again. It is not retriable: a retry does not help before that.
    """


class EmbeddedFormatError(ClientError):
    """A newer version wrote the directory, or it is not an embedded directory."""


class EmbeddedLocationError(ClientError):
    """The directory cannot be used: no local disk, no directory, or no access. Choose another."""


class EmbeddedDamageError(CorruptDataError):
    """The database file is damaged. `fluss-orchestrate embedded check` shows where."""


def translate(error: sqlite3.Error, where: str) -> FlussError:
    """Return the typed error for one of SQLite's errors; `where` is the directory to name."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return EmbeddedStorageError(f"{where}: {error}")
    primary = code & _PRIMARY_CODE
    if primary in (BUSY, LOCKED):
        return locked(where)
    if primary == READ_ONLY:
        return EmbeddedReadOnlyError(f"{where} cannot be written: {error}")
    if primary == FULL:
        return EmbeddedStorageError(
            f"{where}: the disk is full; nothing of this call was kept: make room, then try again"
        )
    if primary == IO_ERROR:
        return EmbeddedStorageError(f"{where}: the disk failed ({_name(error)}): {error}")
    if primary == CANNOT_OPEN:
        return EmbeddedLocationError(f"{where} cannot be opened: {error}")
    if primary in (CORRUPT, NOT_A_DATABASE):
        return EmbeddedDamageError(f"{where} is damaged ({error}); run the embedded check on it")
    return EmbeddedStorageError(f"{where}: {_name(error)}: {error}")


def locked(where: str) -> EmbeddedLockedError:
    """Return the error of a write that waited too long for the lock."""
    return EmbeddedLockedError(
        f"{where}: other processes were writing for longer than embedded.lock-timeout; try "
        "again, or raise that setting"
    )


def _name(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", "unknown"))
