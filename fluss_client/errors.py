"""Every error that the client raises: one root class, and one class per error code of the server.

`retriable` and `stale_metadata` are class attributes: a caller asks the class whether a retry helps
and whether new metadata is needed first, and compares no numbers. `SERVER_ERRORS` maps codes to
classes. A code that this version does not know becomes `UnknownServerError` and keeps its number in
`error_code`.

The docstring of a class says what happened and what to do next. It is also the message of a server
error that came without a text.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

ErrorT = TypeVar("ErrorT", bound=BaseException)

CHANGE_TYPE_SHOWN_MAX = 80


class FlussError(Exception):
    """The root of all errors.

    Attributes:
        message: What happened, where, and what to do next.
        error_code: The code of the server, or -2 for errors of the client.
        retriable: Whether the same call may succeed later.
        stale_metadata: Whether new metadata is needed before a retry.
    """

    code: ClassVar[int] = -2
    retriable: ClassVar[bool] = False
    stale_metadata: ClassVar[bool] = False

    def __init__(self, message: str = "", error_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = type(self).code if error_code is None else error_code

    @property
    def is_retriable(self) -> bool:
        """Whether the same call may succeed later, without a change by the caller."""
        if type(self) is FlussError:
            # Made from a code alone, so the attribute of the class of that code counts.
            return SERVER_ERRORS.get(self.error_code, FlussError).retriable
        return type(self).retriable

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r}, error_code={self.error_code})"

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses take other arguments than this class. Spark and Airflow pickle errors to send
        # them to another process, and all fields must survive that.
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
    """Remove the traceback and the causes of an error, because their frames may hold secrets."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


class ClientError(FlussError):
    """The client found the error itself, without an answer from a server."""


class ConfigError(ClientError):
    """A configuration key or value is not valid. The message names the key and what it accepts."""


class SchemaError(ClientError):
    """A schema, table description or data type is not valid in Fluss."""


class RowError(ClientError):
    """A row, key or batch does not fit the table. The message names the column and the value."""


class ChangeTypeError(RowError):
    """The change type of a row is null or unknown.

    Attributes:
        column: The column of the change types.
        row: The index of the row, counted from 0.
        value: The value that is not a change type.
    """

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
    """An expression for `TableScan.filter` is not a valid condition."""


class UnsupportedError(ClientError):
    """This client or this backend does not support the operation.

    The message says what to use instead.
    """


class UnsupportedByServerError(UnsupportedError):
    """The version of this server does not support the call; nothing was sent.

    Upgrade the server.
    """


class RescaledTableError(UnsupportedError):
    """The partitions of the table have different bucket counts, and the operation needs one count.

    The bucket count of a partitioned table can be changed (`alter_table`); each partition keeps
    the count that it was created with. The client reads and writes such tables. An operation that
    takes one count for the whole table refuses them: it would miss buckets, or look for keys in
    the wrong ones.

    Attributes:
        table: The table.
        bucket_count: The bucket count of the table.
        partitions: The bucket count of each partition that has another one, by name.
    """

    def __init__(self, table: str, bucket_count: int, partitions: dict[str, int]) -> None:
        shown = ", ".join(f"'{name}': {count}" for name, count in sorted(partitions.items())[:5])
        more = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
        super().__init__(
            f"table {table} was rescaled: it has {bucket_count} buckets, but its partitions have "
            f"other counts ({shown}{more}). This operation uses one count for all partitions and "
            "would miss buckets. Set the bucket count back and drop these partitions, or copy the "
            "rows to a new table"
        )
        self.table = table
        self.bucket_count = bucket_count
        self.partitions = partitions


class CorruptDataError(ClientError):
    """Received or stored bytes are not valid. Check that the address is that of a Fluss server."""


class ClosedError(ClientError):
    """The connection, writer or scanner was closed before this call. Make a new one."""


class ForkedError(ClientError):
    """An object that was made before a fork was used in the child process.

    Make a new connection in the child process.
    """


class ReentrantCallError(ClientError):
    """A blocking call was made on the client's own I/O thread and would never return.

    Await the call instead, or make it on another thread.
    """


class ConnectError(ClientError):
    """No server could be reached; the message names the addresses that were tried.

    Check that the cluster is up and that `bootstrap.servers` is its address.
    """

    retriable = True
    stale_metadata = True


class TimedOutError(ClientError):
    """No answer came before the deadline; the request may still take effect.

    Retry, or raise the timeout that the message names.
    """

    retriable = True
    stale_metadata = True


class ScanLostError(ClientError):
    """The connection broke during a limit scan; the client did not send it again.

    A server without memory for all the rows crashes, and a retry would crash the next leader too.
    Check that the server is up; then read fewer rows, or read the changelog.
    """


class ScanTooLargeError(ClientError):
    """A limit scan may return more rows than allowed in one answer; nothing was sent.

    Read the log or the changelog, pass a smaller limit, or raise `scanner.limit.rows-max`.

    Attributes:
        rows: The most rows that the bucket may hold.
        rows_max: The most rows that are allowed.
    """

    def __init__(self, message: str, rows: int = 0, rows_max: int = 0) -> None:
        super().__init__(message)
        self.rows = rows
        self.rows_max = rows_max


class StateUnavailableError(ClientError):
    """The key state of a bucket cannot be read without risk for the server, and was not.

    Attributes:
        bucket: The bucket.
        rows: How many rows it has, or None if the server does not count them.
        rows_max: How many rows a limit scan may return.
        bytes_estimated: How many bytes its rows take about, if that is why they are not read.
    """

    def __init__(
        self,
        table: object,
        bucket: object,
        rows: int | None,
        rows_max: int,
        hint: str,
        bytes_estimated: int | None = None,
        bytes_max: int = 0,
    ) -> None:
        counted = "an unknown number of rows" if rows is None else f"{rows} rows"
        limit = f"{rows_max} (scanner.state.limit-scan.rows-max)"
        if bytes_estimated is not None:
            counted += f" of about {bytes_estimated} bytes"
            limit = f"{bytes_max} bytes (scanner.state.limit-scan.bytes-max)"
        super().__init__(
            f"{table}: the state of {bucket} cannot be read: it has no KV snapshot that this "
            f"client can open, a part of its changelog was deleted, and it has {counted}, "
            f"while a limit scan returns at most {limit}. {hint}"
        )
        self.bucket = bucket
        self.rows = rows
        self.rows_max = rows_max
        self.bytes_estimated = bytes_estimated


class StateScanLostError(ClientError):
    """A server ended a scan of the key state before its last row. Read again.

    It happens if the reader pauses for some minutes, or if the bucket gets another leader. Readers
    open a new scan and go on where they were; this error says that they could not.

    Attributes:
        bucket: The bucket that was scanned.
    """

    def __init__(self, message: str, bucket: object = None) -> None:
        super().__init__(message)
        self.bucket = bucket


class BufferFullError(ClientError):
    """The writer's buffer stayed full for `writer.buffer.wait-timeout-ms`.

    Write more slowly, or raise the size of the buffer or the timeout.
    """

    retriable = True


class WriteError(ClientError):
    """A batch of rows was not written; `__cause__` is the reason.

    Attributes:
        bucket: The bucket of the batch.
        row_count: The number of its rows.
    """

    def __init__(self, message: str, bucket: object = None, row_count: int = 0) -> None:
        super().__init__(message)
        self.bucket = bucket
        self.row_count = row_count


class TableNotReadyError(ClientError):
    """The table exists, but the coordinator does not know it; nothing was dropped.

    Wait and try again; if it persists, restart the coordinator.

    Attributes:
        table_path: The path of the table.
        table_id: The id of the table, or None.
    """

    def __init__(
        self, message: str, table_path: object = None, table_id: int | None = None
    ) -> None:
        super().__init__(message)
        self.table_path = table_path
        self.table_id = table_id


class MissingExtraError(ClientError):
    """An optional package is missing; the message names the extra to install.

    Attributes:
        package: The missing package.
        extra: The extra of this project that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs {package}: install it with  pip install 'fluss-orchestrate[{extra}]'"
        )
        self.package = package
        self.extra = extra


class ServerError(FlussError):
    """A server answered with an error."""


class RetriableServerError(ServerError):
    """A server error after which the same request may succeed.

    The client retries it; if it is raised, the deadline has passed.
    """

    retriable = True


class StaleMetadataError(RetriableServerError):
    """A server error that says that the client's metadata is out of date.

    The client asks for new metadata and retries; if it is raised, the deadline has passed.
    """

    stale_metadata = True


class UnknownServerError(ServerError):
    """The server failed with an error that has no code of its own.

    Look at the log of the server.
    """

    code = -1


class NetworkError(StaleMetadataError):
    """The connection to a server broke; the request may or may not have arrived.

    Check the network and the server; a read can be retried.
    """

    code = 1


class UnsupportedVersionError(ServerError):
    """The server does not support this version of the request. Upgrade the server or the client."""

    code = 2


class CorruptMessageError(RetriableServerError):
    """The server could not read the request.

    Retry; if it persists, check that client and server versions fit.
    """

    code = 3


class DatabaseNotExistError(ServerError):
    """The database does not exist. Create it with `create_database`, or check its name."""

    code = 4


class DatabaseNotEmptyError(ServerError):
    """The database still has tables. Drop them first, or drop the database with `cascade`."""

    code = 5


class DatabaseAlreadyExistError(ServerError):
    """A database of this name exists. Choose another name, or pass `ignore_if_exists`."""

    code = 6


class TableNotExistError(ServerError):
    """The table does not exist. Create it with `create_table`, or check its name."""

    code = 7


class TableAlreadyExistError(ServerError):
    """A table of this name exists. Choose another name, or pass `ignore_if_exists`."""

    code = 8


class SchemaNotExistError(RetriableServerError):
    """The table has no schema with this id yet.

    Retry; a new schema may not have reached this server.
    """

    code = 9


class LogStorageError(RetriableServerError):
    """The server failed to read or write a log.

    Retry; if it persists, check the server's disk and log.
    """

    code = 10


class KvStorageError(RetriableServerError):
    """The server failed to read or write a key state.

    Retry; if it persists, check the server's disk and log.
    """

    code = 11


class NotLeaderOrFollowerError(StaleMetadataError):
    """Another server leads the bucket now. The client finds the new leader and retries."""

    code = 12


class RecordTooLargeError(ServerError):
    """A record or request is larger than the server accepts. Write smaller rows or batches."""

    code = 13


class CorruptRecordError(RetriableServerError):
    """A batch of records failed its checksum on the server.

    Retry; if it persists, check the network and the memory of this machine.
    """

    code = 14


class InvalidTableError(ServerError):
    """The name or description of the table is not valid. Change what the message names."""

    code = 15


class InvalidDatabaseError(ServerError):
    """The name or description of the database is not valid. Change what the message names."""

    code = 16


class InvalidReplicationFactorError(ServerError):
    """The cluster cannot hold that many replicas.

    Lower `table.replication.factor`, or add tablet servers.
    """

    code = 17


class InvalidRequiredAcksError(ServerError):
    """`acks` is none of -1 (all), 1 and 0. Set `writer.acks` to one of them."""

    code = 18


class LogOffsetOutOfRangeError(ServerError):
    """The log has no such offset: retention deleted it, or it is not written yet.

    Start from the earliest offset, or raise `table.log.ttl`.
    """

    code = 19


class NonPrimaryKeyTableError(ServerError):
    """The operation needs a table with a primary key. Append to this table and scan its log."""

    code = 20


class UnknownTableOrBucketError(StaleMetadataError):
    """The server does not know the bucket: it is new, has moved, or was dropped.

    The client asks for new metadata and retries.
    """

    code = 21


class InvalidUpdateVersionError(ServerError):
    """The version of an update is older than the version of the server.

    Read the current state and update again.
    """

    code = 22


class InvalidCoordinatorError(ServerError):
    """The request names an epoch of a coordinator that does not lead any more.

    Send the next heartbeat with the epoch of its answer.
    """

    code = 23


class FencedLeaderEpochError(ServerError):
    """The request names an epoch of a leader that does not lead any more.

    Retry after the metadata was refreshed.
    """

    code = 24


class RequestTimeOutError(RetriableServerError):
    """The server did not finish the request in time. Retry, or raise the request timeout."""

    code = 25


class StorageError(RetriableServerError):
    """A disk or remote storage failed.

    Retry; if it persists, check the storage that the message names.
    """

    code = 26


class StorageRefusedError(StorageError):
    """A store refused a request, and will refuse it again: a wrong key, clock, bucket or region.

    Change what the message names.
    """

    retriable = False


class StorageCredentialsExpiredError(StorageError):
    """The credentials for a store have expired.

    Those of a cluster's token are renewed by the client. Renew others, and run it again.
    """


class OperationNotAttemptedError(ServerError):
    """The server did not attempt the operation. Retry it."""

    code = 27


class NotEnoughReplicasAfterAppendError(RetriableServerError):
    """The rows are on the leader, but too few followers confirmed them.

    Retry; check that all tablet servers are up.
    """

    code = 28


class NotEnoughReplicasError(RetriableServerError):
    """Too few replicas are in sync to accept a write.

    Retry; check that all tablet servers are up.
    """

    code = 29


class SecurityTokenError(ServerError):
    """The cluster could not give a token for the remote file system.

    Check the remote storage settings of the cluster.
    """

    code = 30


class OutOfOrderSequenceError(ServerError):
    """A batch of an idempotent writer came out of order. Make a new writer."""

    code = 31


class DuplicateSequenceError(ServerError):
    """A batch of an idempotent writer came a second time; it is stored once."""

    code = 32


class UnknownWriterIdError(ServerError):
    """The server has no state of this writer any more. Make a new writer."""

    code = 33


class InvalidColumnProjectionError(ServerError):
    """The projected columns do not fit the stored data.

    Check the columns; data that was written before a column was added lacks it.
    """

    code = 34


class InvalidTargetColumnError(ServerError):
    """The columns of a partial update are not allowed.

    Name all key columns; all other columns must be nullable.
    """

    code = 35


class ExpiredPartitionError(ClientError):
    """A look-up names a partition that does not exist, and the table keeps expired ones elsewhere.

    Rows of expired partitions are in the lake of the table and in its system partition (Fluss 1.0),
    where this client does not look. Query the lake, or look up keys of partitions that exist.
    """


class PartitionNotExistError(ServerError):
    """The partition does not exist. Create it with `create_partition` before writing to it."""

    code = 36


class TableNotPartitionedError(ServerError):
    """The table has no partitions. Leave the partition out."""

    code = 37


class InvalidTimestampError(ServerError):
    """The timestamp is in the future. Give an earlier one, or the latest offset."""

    code = 38


class InvalidConfigError(ServerError):
    """A property of the table or cluster is not valid. Change what the message names."""

    code = 39


class LakeStorageNotConfiguredError(ServerError):
    """The cluster has no lake. Set `datalake.format` in the configuration of the servers."""

    code = 40


class KvSnapshotNotExistError(ServerError):
    """The snapshot of the key state does not exist.

    List the snapshots again; older ones are deleted.
    """

    code = 41


class PartitionAlreadyExistError(ServerError):
    """A partition of this name exists. Pass `ignore_if_exists`."""

    code = 42


class InvalidPartitionError(ServerError):
    """The partition specification is not valid. Give one valid value for each partition key."""

    code = 43


class LeaderNotAvailableError(StaleMetadataError):
    """The bucket or cluster has no leader at this moment.

    Retry; if it persists, check that the servers are up.
    """

    code = 44


class TooManyPartitionsError(ServerError):
    """The table has as many partitions as the cluster allows.

    Drop old ones, or raise `max.partition.num` of the servers.
    """

    code = 45


class AuthenticationError(ServerError):
    """The server did not accept the user name and password.

    Check `security.sasl.username` and `security.sasl.password`.
    """

    code = 46


class SecurityDisabledError(ServerError):
    """The cluster has no authorizer, so it has no ACLs.

    Set `authorizer.enabled` in the configuration of the servers.
    """

    code = 47


class AuthorizationError(ServerError):
    """The user is not allowed to do this. Ask an administrator for an ACL."""

    code = 48


class TooManyBucketsError(ServerError):
    """The table would have more buckets than the cluster allows.

    Use fewer buckets or partitions, or raise `max.bucket.num` of the servers.
    """

    code = 49


class FencedTieringEpochError(ServerError):
    """Another tiering service has taken over this table.

    Stop tiering it; request a table with the next heartbeat.
    """

    code = 50


class RetriableAuthenticationError(RetriableServerError):
    """Authentication failed for a temporary reason. Retry it."""

    code = 51


class InvalidServerRackInfoError(ServerError):
    """The racks of the servers are not set consistently.

    Set a rack for all tablet servers, or for none.
    """

    code = 52


class LakeSnapshotNotExistError(ServerError):
    """The table has no lake snapshot yet. Wait until a tiering service has committed one."""

    code = 53


class LakeTableAlreadyExistError(ServerError):
    """The lake has a table of this name. Drop it in the lake, or choose another name."""

    code = 54


class IneligibleReplicaError(ServerError):
    """The replica is not allowed to join the in-sync replicas."""

    code = 55


class InvalidAlterTableError(ServerError):
    """The table cannot be changed in this way. The message names what cannot be changed."""

    code = 56


class DeletionDisabledError(ServerError):
    """The table does not accept deletes. Set `table.delete.behavior` when the table is created."""

    code = 57


class ServerNotExistError(ServerError):
    """The cluster has no server with this id. List the servers with `get_server_nodes`."""

    code = 58


class ServerTagAlreadyExistError(ServerError):
    """The server has this tag already. Remove the tag first."""

    code = 59


class ServerTagNotExistError(ServerError):
    """The server does not have this tag."""

    code = 60


class RebalanceFailureError(ServerError):
    """The rebalance failed. Look at the log of the coordinator, then start it again."""

    code = 61


class NoRebalanceInProgressError(ServerError):
    """No rebalance is in progress."""

    code = 62


class InvalidProducerIdError(ServerError):
    """The producer id is not valid. Use letters, digits, `_` and `-`."""

    code = 63


class ServerConfigError(ServerError):
    """The configuration of the server is not valid. Change what the message names."""

    code = 64


class NotCoordinatorLeaderError(StaleMetadataError):
    """This coordinator is on standby; another one leads.

    The client finds the leader and retries.
    """

    code = 65


class ScannerExpiredError(ServerError):
    """The scan of the key state was idle for too long. Start the scan again."""

    code = 66


class UnknownScannerIdError(ServerError):
    """The server does not know this scan of the key state (any more). Start the scan again."""

    code = 67


class InvalidScanRequestError(ServerError):
    """The request to scan the key state is not valid."""

    code = 68


class TooManyScannersError(RetriableServerError):
    """The server has as many open scans as it allows. Retry, or close other scans."""

    code = 69


class DiskWriteLockedError(RetriableServerError):
    """The server's disk is nearly full, so it accepts no writes.

    Retry after room was made on the server.
    """

    code = 70


class InsufficientKvLeaderCapacityError(ServerError):
    """The server cannot lead more key buckets. Add tablet servers, or use fewer buckets."""

    code = 71


class StorageBackpressureError(RetriableServerError):
    """The server is overloaded and asks for slower writes. The client waits and retries."""

    code = 72


class HistoricalPartitionThrottledError(RetriableServerError):
    """The server limits reads of historical partitions. The client waits and retries."""

    code = 73


class InvalidBucketRoutingError(StaleMetadataError):
    """The request was made for another bucket count than its partition has. Nothing was written.

    The client asks for the count of the partition, places the rows or keys anew, and goes on. If
    it is raised, the servers did not agree on a count within the deadline: retry.
    """

    code = 74


def _server_classes(root: type[ServerError]) -> dict[int, type[ServerError]]:
    found: dict[int, type[ServerError]] = {}
    for cls in root.__subclasses__():
        if "code" in vars(cls):
            found[cls.code] = cls
        found.update(_server_classes(cls))
    return found


SERVER_ERRORS: dict[int, type[ServerError]] = _server_classes(ServerError)
"""The class of each error code of the server."""
_COORDINATOR_STARTS = {
    UnknownServerError.code: "CoordinatorEventProcessor is not initialized yet",
    InvalidReplicationFactorError.code: "larger than available tablet servers: 0.",
}
"""What a coordinator answers before it has read its cluster from ZooKeeper. It refuses such a
request before it does anything, so any request can be sent again."""


def error_for(code: int, message: str | None = None) -> FlussError:
    """Return the typed error for an error code of the server.

    Args:
        code: The code; an unknown one gives `UnknownServerError` with this number.
        message: The text of the server. Without one, the class says what happened.

    Returns:
        The error, not raised. A coordinator that has just started, and does not know its cluster
        yet, has no code of its own: `LeaderNotAvailableError`, which can be retried.
    """
    cls = SERVER_ERRORS.get(code, UnknownServerError)
    starts = _COORDINATOR_STARTS.get(code)
    if message and starts and starts in message:
        said = _without_trace(message)
        return LeaderNotAvailableError(f"the coordinator has just started: {said}")
    text = _without_trace(message or "") or " ".join((cls.__doc__ or "").split()).rstrip(".")
    return cls(text, code)


def _without_trace(message: str) -> str:
    """Return the messages of a Java stack trace, without its frames."""
    if "\n\tat " not in message:
        return message.strip()
    lines = [line.strip() for line in message.splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "... "))]
    return " ".join(dict.fromkeys(said))
