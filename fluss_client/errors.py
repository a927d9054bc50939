"""Every error that the client raises: one root class, one class per server code.

`retriable` and `stale_metadata` are class attributes, so that a caller asks the class what helps
instead of comparing numbers. Server codes map to classes by one table; a code that this version
does not know becomes `UnknownServerError` and keeps its number in `error_code`.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

ErrorT = TypeVar("ErrorT", bound=BaseException)

CHANGE_TYPE_SHOWN_MAX = 80


class FlussError(Exception):
    """The root of all errors. `message` says what happened, `error_code` which kind it is."""

    code: ClassVar[int] = -2
    retriable: ClassVar[bool] = False
    stale_metadata: ClassVar[bool] = False

    def __init__(self, message: str = "", error_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = type(self).code if error_code is None else error_code

    @property
    def is_retriable(self) -> bool:
        """Whether the same call may succeed later without a change by the caller."""
        if type(self) is FlussError:
            # Made from a code alone: the class of that code knows.
            return SERVER_ERRORS.get(self.error_code, FlussError).retriable
        return type(self).retriable

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r}, error_code={self.error_code})"

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses may take other arguments; a copy that crosses a process keeps the fields.
        return (_rebuild, (type(self), self.message, self.error_code, self.__dict__))


def _rebuild(
    cls: type[FlussError], message: str, error_code: int, fields: dict[str, object]
) -> FlussError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.message = message
    error.error_code = error_code
    error.__dict__.update(fields)
    return error


def without_frames(error: ErrorT) -> ErrorT:
    """The error without its traceback and the errors behind it, whose frames may hold secrets."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


class ClientError(FlussError):
    """An error found on this side, before or without an answer from a server."""


class ConfigError(ClientError):
    """A configuration key or value that cannot be used."""


class SchemaError(ClientError):
    """A schema, table description or type that Fluss cannot hold."""


class RowError(ClientError):
    """A row, key or batch that does not fit the table; names the column and the value."""


class ChangeTypeError(RowError):
    """A row's change type is null or unknown; the fields say which row of which column."""

    def __init__(self, column: str, row: int, value: object, kind: str, known: str) -> None:
        shown = "null" if value is None else repr(value)
        if len(shown) > CHANGE_TYPE_SHOWN_MAX:
            shown = f"{shown[:CHANGE_TYPE_SHOWN_MAX]}…"
        super().__init__(
            f"column '{column}' (Arrow type {kind}), row {row}, counted from 0: {shown} is not a "
            f"change type. It takes {known}"
        )
        self.column = column
        self.row = row
        self.value = value


class PredicateError(ClientError, TypeError):
    """A condition for `TableScan.filter` that cannot be made so."""


class UnsupportedError(ClientError):
    """Something that this client or this backend does not offer; says what to use instead."""


class UnsupportedByServerError(UnsupportedError):
    """A call that this server's version does not serve; nothing was sent."""


class CorruptDataError(ClientError):
    """Bytes that are not what the protocol promises."""


class ClosedError(ClientError):
    """The connection, writer or scanner was closed before this call."""


class ForkedError(ClientError):
    """An object made before a fork was used in the child; make a new connection there."""


class ReentrantCallError(ClientError):
    """A blocking call was made on the client's own I/O thread, where it could never return."""


class ConnectError(ClientError):
    """No server could be reached; names the addresses that were tried."""

    retriable = True
    stale_metadata = True


class TimedOutError(ClientError):
    """No answer came within the deadline; what was sent may still take effect."""

    retriable = True
    stale_metadata = True


class ScanLostError(ClientError):
    """The server was lost while it collected the rows of a limit scan; it was not asked again.

    A server that has no memory for the rows stops, and so would the one that takes its place.
    """


class ScanTooLargeError(ClientError):
    """A limit scan may give more rows than a server is asked for in one answer; nothing was sent.

    `rows` is how many the bucket holds at most, `rows_max` what is allowed.
    """

    def __init__(self, message: str, rows: int = 0, rows_max: int = 0) -> None:
        super().__init__(message)
        self.rows = rows
        self.rows_max = rows_max


class BufferFullError(ClientError):
    """The writer's buffer stayed full for `writer.buffer.wait-timeout-ms`."""

    retriable = True


class WriteError(ClientError):
    """A batch of rows was not written; `bucket` names where, `__cause__` why."""

    def __init__(self, message: str, bucket: object = None, row_count: int = 0) -> None:
        super().__init__(message)
        self.bucket = bucket
        self.row_count = row_count


class TableNotReadyError(ClientError):
    """A table exists that the coordinator does not know, yet or for good; nothing was dropped.

    `table_path` and `table_id` name the table.
    """

    def __init__(
        self, message: str, table_path: object = None, table_id: int | None = None
    ) -> None:
        super().__init__(message)
        self.table_path = table_path
        self.table_id = table_id


class MissingExtraError(ClientError):
    """An optional package is needed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs {package}: install it with  pip install 'fluss-orchestrate[{extra}]'"
        )
        self.package = package
        self.extra = extra


class ServerError(FlussError):
    """An error that a server answered with."""


class RetriableServerError(ServerError):
    """A server error after which the same request may succeed."""

    retriable = True


class StaleMetadataError(RetriableServerError):
    """A server error that asks for fresh metadata before the request is tried again."""

    stale_metadata = True


class UnknownServerError(ServerError):
    """The server failed in a way that has no code of its own."""

    code = -1


class NetworkError(StaleMetadataError):
    """The line to a server broke; what was sent may or may not have arrived."""

    code = 1


class UnsupportedVersionError(ServerError):
    """The server does not take this version of the request."""

    code = 2


class CorruptMessageError(RetriableServerError):
    """The server could not read the message."""

    code = 3


class DatabaseNotExistError(ServerError):
    """There is no such database."""

    code = 4


class DatabaseNotEmptyError(ServerError):
    """The database still holds tables."""

    code = 5


class DatabaseAlreadyExistError(ServerError):
    """A database of this name exists."""

    code = 6


class TableNotExistError(ServerError):
    """There is no such table."""

    code = 7


class TableAlreadyExistError(ServerError):
    """A table of this name exists."""

    code = 8


class SchemaNotExistError(RetriableServerError):
    """The table has no schema of this id (yet)."""

    code = 9


class LogStorageError(RetriableServerError):
    """The server's log storage failed."""

    code = 10


class KvStorageError(RetriableServerError):
    """The server's key storage failed."""

    code = 11


class NotLeaderOrFollowerError(StaleMetadataError):
    """The bucket lives on another server now."""

    code = 12


class RecordTooLargeError(ServerError):
    """A record is larger than the server takes."""

    code = 13


class CorruptRecordError(RetriableServerError):
    """A record batch failed its checksum."""

    code = 14


class InvalidTableError(ServerError):
    """The table's name or description is not valid."""

    code = 15


class InvalidDatabaseError(ServerError):
    """The database's name or description is not valid."""

    code = 16


class InvalidReplicationFactorError(ServerError):
    """The cluster cannot hold that many replicas."""

    code = 17


class InvalidRequiredAcksError(ServerError):
    """`acks` is none of all, 1 and 0."""

    code = 18


class LogOffsetOutOfRangeError(ServerError):
    """The log has no such offset: retention removed it, or it is not written yet."""

    code = 19


class NonPrimaryKeyTableError(ServerError):
    """The operation needs a table with a primary key."""

    code = 20


class UnknownTableOrBucketError(StaleMetadataError):
    """The server does not know the bucket: it is new, has moved, or its table was dropped."""

    code = 21


class InvalidUpdateVersionError(ServerError):
    """The version of an update is not valid."""

    code = 22


class InvalidCoordinatorError(ServerError):
    """The coordinator's epoch is stale."""

    code = 23


class FencedLeaderEpochError(ServerError):
    """The leader's epoch is stale."""

    code = 24


class RequestTimeOutError(RetriableServerError):
    """The server did not finish the request in time."""

    code = 25


class StorageError(RetriableServerError):
    """The server's disk failed."""

    code = 26


class OperationNotAttemptedError(ServerError):
    """The server did not try the operation."""

    code = 27


class NotEnoughReplicasAfterAppendError(RetriableServerError):
    """The rows are on the leader, too few followers confirmed them."""

    code = 28


class NotEnoughReplicasError(RetriableServerError):
    """Too few replicas are in sync to take a write."""

    code = 29


class SecurityTokenError(ServerError):
    """No token for the remote file system could be had."""

    code = 30


class OutOfOrderSequenceError(ServerError):
    """A batch of an idempotent writer came out of order."""

    code = 31


class DuplicateSequenceError(ServerError):
    """A batch of an idempotent writer came twice."""

    code = 32


class UnknownWriterIdError(ServerError):
    """The server has forgotten this writer."""

    code = 33


class InvalidColumnProjectionError(ServerError):
    """The projected columns do not fit the data."""

    code = 34


class InvalidTargetColumnError(ServerError):
    """The columns of a partial update are not allowed."""

    code = 35


class PartitionNotExistError(ServerError):
    """There is no such partition."""

    code = 36


class TableNotPartitionedError(ServerError):
    """The table has no partitions."""

    code = 37


class InvalidTimestampError(ServerError):
    """The timestamp lies in the future."""

    code = 38


class InvalidConfigError(ServerError):
    """A property of the table or cluster is not valid."""

    code = 39


class LakeStorageNotConfiguredError(ServerError):
    """The cluster has no lake."""

    code = 40


class KvSnapshotNotExistError(ServerError):
    """There is no such snapshot of the key state."""

    code = 41


class PartitionAlreadyExistError(ServerError):
    """A partition of this name exists."""

    code = 42


class InvalidPartitionError(ServerError):
    """The partition's specification is not valid."""

    code = 43


class LeaderNotAvailableError(StaleMetadataError):
    """The bucket has no leader right now."""

    code = 44


class TooManyPartitionsError(ServerError):
    """The table has as many partitions as the cluster allows."""

    code = 45


class AuthenticationError(ServerError):
    """The server did not accept the user name and password."""

    code = 46


class SecurityDisabledError(ServerError):
    """The cluster has no authorizer."""

    code = 47


class AuthorizationError(ServerError):
    """The user may not do this."""

    code = 48


class TooManyBucketsError(ServerError):
    """The table would have more buckets than the cluster allows."""

    code = 49


class FencedTieringEpochError(ServerError):
    """Another tiering service has taken this table over."""

    code = 50


class RetriableAuthenticationError(RetriableServerError):
    """Authentication failed for now; it may succeed when tried again."""

    code = 51


class InvalidServerRackInfoError(ServerError):
    """The servers' racks are not set consistently."""

    code = 52


class LakeSnapshotNotExistError(ServerError):
    """The table has no lake snapshot (yet)."""

    code = 53


class LakeTableAlreadyExistError(ServerError):
    """The lake holds a table of this name already."""

    code = 54


class IneligibleReplicaError(ServerError):
    """The replica may not join."""

    code = 55


class InvalidAlterTableError(ServerError):
    """The table cannot be changed in this way."""

    code = 56


class DeletionDisabledError(ServerError):
    """The table does not take deletes."""

    code = 57


class ServerNotExistError(ServerError):
    """There is no server of this id."""

    code = 58


class ServerTagAlreadyExistError(ServerError):
    """The server has such a tag."""

    code = 59


class ServerTagNotExistError(ServerError):
    """The server has no such tag."""

    code = 60


class RebalanceFailureError(ServerError):
    """The rebalance failed."""

    code = 61


class NoRebalanceInProgressError(ServerError):
    """No rebalance is under way."""

    code = 62


class InvalidProducerIdError(ServerError):
    """The producer id is not valid."""

    code = 63


class ServerConfigError(ServerError):
    """The server's configuration is not valid."""

    code = 64


class NotCoordinatorLeaderError(StaleMetadataError):
    """This coordinator is on standby; another one leads."""

    code = 65


class ScannerExpiredError(ServerError):
    """The scan of the key state was left alone for too long; start it again."""

    code = 66


class UnknownScannerIdError(ServerError):
    """The server does not know this scan of the key state; start it again."""

    code = 67


class InvalidScanRequestError(ServerError):
    """The request to scan the key state is not valid."""

    code = 68


class TooManyScannersError(RetriableServerError):
    """The server has as many open scans as it allows."""

    code = 69


class DiskWriteLockedError(RetriableServerError):
    """The server's disk is nearly full."""

    code = 70


class InsufficientKvLeaderCapacityError(ServerError):
    """The server cannot lead more key buckets."""

    code = 71


class StorageBackpressureError(RetriableServerError):
    """The server asks to write more slowly."""

    code = 72


class HistoricalPartitionThrottledError(RetriableServerError):
    """Reads of historical partitions are being limited."""

    code = 73


def _server_classes(root: type[ServerError]) -> dict[int, type[ServerError]]:
    found: dict[int, type[ServerError]] = {}
    for cls in root.__subclasses__():
        if "code" in vars(cls):
            found[cls.code] = cls
        found.update(_server_classes(cls))
    return found


SERVER_ERRORS: dict[int, type[ServerError]] = _server_classes(ServerError)


def error_for(code: int, message: str | None = None) -> FlussError:
    """The typed error for a server's code; an unknown code keeps its number."""
    cls = SERVER_ERRORS.get(code, UnknownServerError)
    text = _without_trace(message or "") or (cls.__doc__ or "").strip().rstrip(".")
    return cls(text, code)


def _without_trace(message: str) -> str:
    """What a Java stack trace says, without the places in the server's code."""
    if "\n\tat " not in message:
        return message.strip()
    lines = [line.strip() for line in message.splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "... "))]
    return " ".join(dict.fromkeys(said))
