"""Servers, changes, offsets, lake snapshots and messages of tiering workers as values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.errors import ChangeTypeError, FlussError
from fluss_client.model.table import TableBucket, TablePath

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
_SIGNS = ("+A", "+I", "-U", "+U", "-D")
_WORDS = ("append_only", "insert", "update_before", "update_after", "delete")
_KNOWN = f"{', '.join(_SIGNS)}; {', '.join(_WORDS)}; the codes 0 to {len(_SIGNS) - 1}"
_UNKNOWN = 255


@dataclass(frozen=True, slots=True)
class ServerNode:
    """A server of the cluster.

    Attributes:
        id: The id of the server.
        host: The host that clients connect to.
        port: The port that clients connect to.
        server_type: `CoordinatorServer` or `TabletServer`.
    """

    id: int
    host: str
    port: int
    server_type: str

    @property
    def uid(self) -> str:
        """A name that is unique among all servers, such as `cs-0` or `ts-1`."""
        return f"{'cs' if self.server_type == 'CoordinatorServer' else 'ts'}-{self.id}"


class ChangeType(enum.IntEnum):
    """What happened to a row, in its three forms.

    The code (`int(change)`) is the byte in a changelog. The sign (`str(change)`) is what every
    reader writes into a column `_change_type`. The word is the form of Fluss's own `$changelog`
    tables. `codes_of` takes columns of any of them.
    """

    AppendOnly = 0
    Insert = 1
    UpdateBefore = 2
    UpdateAfter = 3
    Delete = 4

    @property
    def sign(self) -> str:
        """`+A`, `+I`, `-U`, `+U` or `-D`."""
        return _SIGNS[self.value]

    @property
    def word(self) -> str:
        """`append_only`, `insert`, `update_before`, `update_after` or `delete`."""
        return _WORDS[self.value]

    def short_string(self) -> str:
        """Return the sign, under the name that the official client has for it."""
        return self.sign

    @staticmethod
    def signs_of(codes: npt.NDArray[np.uint8]) -> pa.StringArray:
        """Return the signs of an array of `codes`."""
        # Not at import: the first array that pyarrow makes of Python values imports pandas.
        return pa.array(_SIGNS, pa.string()).take(pa.array(codes))

    @staticmethod
    def codes_of(
        array: pa.Array | pa.ChunkedArray, column: str = "_change_type", first_row: int = 0
    ) -> npt.NDArray[np.uint8]:
        """Return the codes of a column that holds change types in any of their forms.

        Args:
            array: Codes as integers of any width, or signs or words (both may occur in one
                column) as `string`, `large_string` or `string_view`; dictionaries and run-end
                encoded arrays of these. Upper and lower case count.
            column: The column's name, for the error.
            first_row: The number of the array's first row, for the error.

        Returns:
            One code per row.

        Raises:
            ChangeTypeError: A row holds null or a value that is no change type. The error names
                the first such row, counted from 0 over all chunks, and its value.
        """
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        codes = np.concatenate([np.empty(0, np.uint8), *map(_codes_of, chunks)])
        unknown = codes == _UNKNOWN
        if unknown.any():
            row = int(unknown.argmax())
            value = _value_at(array, row)
            raise ChangeTypeError(column, first_row + row, value, str(array.type), _KNOWN)
        return codes

    def __str__(self) -> str:
        return self.sign

    def __format__(self, spec: str) -> str:
        return format(self.sign, spec)

    def __repr__(self) -> str:
        return f"ChangeType.{self.name}"


def _codes_of(array: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the codes of one chunk, `_UNKNOWN` where a row has none."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        # Only values that a row refers to count: a dictionary may hold others.
        of_values = np.append(_codes_of(array.dictionary), np.uint8(_UNKNOWN))
        at = array.indices.cast(pa.int64()).fill_null(len(array.dictionary)).to_numpy()
        return np.asarray(of_values[at], np.uint8)
    if pa.types.is_run_end_encoded(kind):
        return _codes_of(pc.run_end_decode(array))
    if pa.types.is_integer(kind):
        codes = pc.index_in(array, value_set=pa.array(range(len(_SIGNS)), kind))
    elif kind in (pa.string(), pa.large_string(), pa.string_view()):
        found = _codes_of_signs(array) if kind == pa.string() else None
        if found is not None:
            return found
        forms, code_of_form = _forms()
        codes = code_of_form.take(pc.index_in(array.cast(forms.type), value_set=forms))
    else:
        return np.full(len(array), _UNKNOWN, np.uint8)
    return np.asarray(codes.fill_null(_UNKNOWN), np.uint8)


def _codes_of_signs(array: pa.StringArray) -> npt.NDArray[np.uint8] | None:
    """Return the codes of texts that all have two bytes, as signs do; None if one has not.

    All changes that are read here have signs, and hashing each of them would take longer.
    """
    count = len(array)
    _, offsets, data = array.buffers()
    if array.null_count or not count or data is None:
        return None
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + count + 1]
    if (np.diff(bounds) != 2).any():
        return None
    pairs = np.frombuffer(data, np.uint16, count, int(bounds[0]))
    return np.asarray(_code_of_pair()[pairs], np.uint8)


@lru_cache(maxsize=1)
def _code_of_pair() -> npt.NDArray[np.uint8]:
    """Return the code of each pair of bytes."""
    codes = np.full(1 << 16, _UNKNOWN, np.uint8)
    for code, sign in enumerate(_SIGNS):
        codes[np.frombuffer(sign.encode(), np.uint16)] = code
    return codes


@lru_cache(maxsize=1)
def _forms() -> tuple[pa.Array, pa.Array]:
    """Return each sign and word, and the code of each."""
    codes = [int(change) for change in ChangeType]
    return pa.array([*_SIGNS, *_WORDS], pa.large_string()), pa.array([*codes, *codes], pa.uint8())


def _value_at(array: pa.Array | pa.ChunkedArray, row: int) -> object:
    try:
        return array[row].as_py()
    except (ValueError, OverflowError):
        # Arrow has times that Python's classes cannot express.
        return "a value that Python cannot hold"


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Which offset `list_offsets` returns. Make it with `earliest()`, `latest()` or `timestamp()`.

    Attributes:
        kind: `earliest`, `latest` or `timestamp`.
        timestamp_ms: The time, in milliseconds since 1970, for `timestamp`.
    """

    kind: str
    timestamp_ms: int | None = None

    @staticmethod
    def earliest() -> OffsetSpec:
        """Return the first offset that can still be read."""
        return OffsetSpec("earliest")

    @staticmethod
    def latest() -> OffsetSpec:
        """Return the next offset to be written, as far as every replica has it."""
        return OffsetSpec("latest")

    @staticmethod
    def timestamp(ts: int) -> OffsetSpec:
        """Return the first offset committed at or after `ts` (ms), approximately: see the docs."""
        return OffsetSpec("timestamp", int(ts))

    def __repr__(self) -> str:
        inner = "" if self.timestamp_ms is None else str(self.timestamp_ms)
        return f"OffsetSpec.{self.kind}({inner})"


@dataclass(frozen=True)
class LakeSnapshot:
    """A snapshot of the lake, and how far each bucket is in it.

    Attributes:
        snapshot_id: The id of the snapshot in the lake.
        table_buckets_offset: The first offset of each bucket that is not in the snapshot.
    """

    snapshot_id: int
    table_buckets_offset: Mapping[TableBucket, int] = field(default_factory=dict)

    def get_bucket_offset(self, bucket: TableBucket) -> int | None:
        """Return the first offset of a `bucket` that is not in the lake; None if none is in it."""
        return self.table_buckets_offset.get(bucket)

    def get_table_buckets(self) -> list[TableBucket]:
        """Return the buckets that were tiered."""
        return list(self.table_buckets_offset)


@dataclass(frozen=True, slots=True)
class KvSnapshot:
    """The newest snapshot of the key state of one bucket.

    Attributes:
        bucket: The bucket.
        snapshot_id: The id of the snapshot; None if there is no snapshot yet.
        log_offset: The offset of the changelog at which the snapshot was taken; None if there is
            none.
    """

    bucket: TableBucket
    snapshot_id: int | None
    log_offset: int | None


@dataclass(frozen=True, slots=True)
class RemoteLogManifest:
    """The list of the remote log segments of a bucket.

    Attributes:
        bucket: The bucket.
        path: Where the list is in remote storage.
        end_offset: The first offset that is not in remote storage.
    """

    bucket: TableBucket
    path: str
    end_offset: int


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """How many replicas of a cluster are in sync and have a leader.

    Attributes:
        status: `green`, `yellow`, `red` or `unknown`.
        replicas: How many replicas there should be.
        in_sync_replicas: How many of them are in sync.
        leaders: How many buckets should have a leader.
        active_leaders: How many of them have one.
    """

    status: str
    replicas: int
    in_sync_replicas: int
    leaders: int
    active_leaders: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of the cluster and where it comes from.

    Attributes:
        key: The key of the setting.
        value: Its value; None if it has none.
        source: Where the value comes from, such as a file or a change at run time.
    """

    key: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Acl:
    """One permission: who may do what on which resource.

    Attributes:
        resource_type: The type of the resource, such as `table` or `database`.
        resource_name: The name of the resource; `*` for all.
        principal: The name of the user; `*` for all.
        operation: The operation, such as `read` or `write`.
        permission: `allow`, the only one that Fluss has.
        principal_type: The type of the principal.
        host: The host from which the principal may do it; `*` for all.
    """

    resource_type: str
    resource_name: str
    principal: str
    operation: str
    permission: str = "allow"
    principal_type: str = "User"
    host: str = "*"


@dataclass(frozen=True, slots=True)
class BucketCommit:
    """How far one bucket is in the lake.

    Attributes:
        bucket: The bucket.
        log_end_offset: The first offset that is not in the lake.
        max_timestamp: The newest commit time in the lake, in milliseconds since 1970; -1 if not
            known.
    """

    bucket: TableBucket
    log_end_offset: int
    max_timestamp: int = -1


@dataclass(frozen=True, slots=True)
class TieringTable:
    """A table that the coordinator assigned to a tiering worker.

    Attributes:
        table_id: The id of the table.
        tiering_epoch: The epoch of the assignment. The coordinator refuses reports of an older one.
        coordinator_epoch: The epoch of the coordinator that assigned it.
        table_path: The table's database and name; None in reports.
    """

    table_id: int
    tiering_epoch: int
    coordinator_epoch: int
    table_path: TablePath | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The coordinator's answer to a heartbeat of a tiering worker.

    Attributes:
        coordinator_epoch: The epoch of the coordinator.
        table: The table to tier next; None if there is none.
        errors: The errors of reported tables, by table id.
    """

    coordinator_epoch: int
    table: TieringTable | None = None
    errors: Mapping[int, FlussError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerOffsets:
    """Offsets that are stored once under a producer id.

    Attributes:
        producer_id: The id.
        offsets: The offset of each bucket.
        expiration_time: When the server deletes them, in milliseconds since 1970; -1 if not known.
    """

    producer_id: str
    offsets: Mapping[TableBucket, int]
    expiration_time: int = -1
