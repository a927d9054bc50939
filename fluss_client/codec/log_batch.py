"""Log record batches, as PRODUCE_LOG sends them and FETCH_LOG and remote segments return them.

All integers are little-endian. Where a field starts, by the batch's magic:

    field              size   magic 0   magic 1   magic 2
    base_offset           8         0         0         0
    length                4         8         8         8   bytes after this field
    magic                 1        12        12        12
    commit_timestamp      8        13        13        13   ms
    leader_epoch          4         -         -        21
    crc                   4        21        21        25
    schema_id             2        25        25        29
    attributes            1        27        27        31   bit 0: append-only
    last_offset_delta     4        28        28        32
    writer_id             8        32        32        36   -1: not idempotent
    batch_sequence        4        40        40        44
    record_count          4        44        44        48
    statistics_length     4         -        48        52
    statistics, body               48        52        56

The CRC-32C covers everything from schema_id to the end. The server fills in base offset, epoch
and commit time after the writer computed it, so the checksum does not cover these three. A batch
that the server has projected keeps its old checksum, which is then wrong: do not check it.

The body depends on the log format:

    ARROW                one IPC message (`codec.arrow_body`); in a changelog, one change-type byte
                         per record before it
    INDEXED, COMPACTED   records back to back: i32 length of the rest, u8 change type, row in the
                         table's log format

Change types are 0 +A, 1 +I, 2 -U, 3 +U, 4 -D; an append-only batch has 0 in each record. This
client writes magic 0, which every server accepts. An empty changelog batch has no body and uses one
offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.codec.arrow_body import Compression, decode_bodies, encode_body
from fluss_client.codec.arrow_columns import align_to as align_to
from fluss_client.codec.arrow_columns import as_wire
from fluss_client.codec.binary.blobs import Blobs, Bytes, Ints, join
from fluss_client.codec.binary.crc32c import BytesLike, Sealed, crc32c, seal
from fluss_client.codec.rows import RowFormat, decode_rows, encode_rows
from fluss_client.errors import CorruptDataError, RowError, UnsupportedError
from fluss_client.model.schema import Schema

LENGTH_SIZE = 4
_LENGTH = struct.Struct("<i")


def record_spans(data: memoryview, count: int, size_min: int) -> tuple[Ints, Ints]:
    """Return starts (behind the length) and lengths of `count` records that fill `data` exactly.

    Records lie back to back, each after its own i32 length (little endian) and with at least
    `size_min` bytes.

    Raises:
        CorruptDataError: The lengths or the count do not fit `data`; the count is checked before
            anything is allocated for it.
    """
    if count < 0 or count * (LENGTH_SIZE + size_min) > data.nbytes:
        raise CorruptDataError(f"{count} records cannot lie in {data.nbytes} bytes")
    starts = []
    lengths = []
    at, end = 0, data.nbytes
    unpack = _LENGTH.unpack_from
    # Only a record's length says where the next one starts, so this must be a loop.
    for _ in range(count):
        if at + LENGTH_SIZE > end:
            raise CorruptDataError("the records end early")
        (length,) = unpack(data, at)
        at += LENGTH_SIZE
        if length < size_min or at + length > end:
            raise CorruptDataError(f"a record of {length} bytes does not fit")
        starts.append(at)
        lengths.append(length)
        at += length
    if at != end:
        raise CorruptDataError(f"{end - at} bytes follow the last record")
    return np.array(starts, np.int64), np.array(lengths, np.int64)


_CHANGE_TYPE_SIZE = 1
_RECORD_SIZE_MIN = _CHANGE_TYPE_SIZE + 1


def encode_log_records(
    batch: pa.RecordBatch, schema: Schema, row_format: RowFormat, change_types: bytes | None = None
) -> BytesLike:
    """Return the batch's rows as records; without `change_types` all of them are appends."""
    if change_types is not None and len(change_types) != batch.num_rows:
        raise RowError(f"{len(change_types)} change types for {batch.num_rows} rows")
    rows = encode_rows(batch, [column.type for column in schema.columns], row_format)
    heads = np.zeros((len(rows), LENGTH_SIZE + _CHANGE_TYPE_SIZE), np.uint8)
    lengths = (rows.lengths + _CHANGE_TYPE_SIZE).astype("<i4")
    heads[:, :LENGTH_SIZE] = lengths.view(np.uint8).reshape(-1, LENGTH_SIZE)
    if change_types is not None:
        heads[:, LENGTH_SIZE] = np.frombuffer(change_types, np.uint8)
    return pa.py_buffer(join([heads, rows]).data)


def decode_log_records(
    body: memoryview,
    count: int,
    schema: Schema,
    row_format: RowFormat,
    wire_schema: pa.Schema,
    columns: list[int] | None,
) -> tuple[Bytes, pa.RecordBatch]:
    """Return change types and rows of `count` records, as the chosen columns' wire types."""
    starts, lengths = record_spans(body, count, _RECORD_SIZE_MIN)
    data = np.frombuffer(body, np.uint8)
    rows = Blobs.from_spans(data, starts + _CHANGE_TYPE_SIZE, lengths - _CHANGE_TYPE_SIZE)
    types = [column.type for column in schema.columns]
    batch = decode_rows(rows, types, schema.get_column_names(), row_format, columns)
    return data[starts], as_wire(batch, wire_schema)


ARROW = "ARROW"
LENGTH_AT = 8
LENGTH_END = 12
MAGIC_AT = 12
CRC_FROM = (25, 25, 29)
"""Where the part that the checksum covers starts, by magic."""
NO_WRITER_ID = -1
NO_BATCH_SEQUENCE = -1
CHANGE_TYPE_MAX = 4

_FRONT = struct.Struct("<qibqI")
_BACK = struct.Struct("<hbiqii")
_HEADERS = (
    struct.Struct("<qibqIhbiqii"),
    struct.Struct("<qibqIhbiqiii"),
    struct.Struct("<qibq4xIhbiqiii"),
)
_HEADER_SIZES = tuple(header.size for header in _HEADERS)
_APPEND_ONLY = 1


# Not frozen: setting twelve fields of a frozen dataclass costs more than parsing the batch.
@dataclass(slots=True, eq=False)
class LogBatchHeader:
    """One batch in a stream of batches; `body` is a view of the stream, change types included."""

    base_offset: int
    last_offset: int
    commit_timestamp: int
    schema_id: int
    writer_id: int
    batch_sequence: int
    record_count: int
    append_only: bool
    magic: int
    crc: int
    body: memoryview = field(repr=False)
    covered: memoryview = field(repr=False)
    """The bytes that the checksum covers."""

    @property
    def next_offset(self) -> int:
        """The offset after the batch; an empty batch has used one offset, too."""
        return self.last_offset + 1

    @property
    def nbytes(self) -> int:
        """The bytes of the batch in its stream, with its header."""
        return CRC_FROM[self.magic] + self.covered.nbytes

    def check_crc(self) -> None:
        """Raise CorruptDataError if the checksum is wrong; a projected batch has no valid one."""
        if crc32c(self.covered) != self.crc:
            raise CorruptDataError(
                f"the log batch at offset {self.base_offset} fails its checksum; read it again, "
                "and restore the bucket if it fails again"
            )


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """A batch's rows as wire types; `change_types` is None when all rows are appends."""

    change_types: npt.NDArray[np.uint8] | None
    batch: pa.RecordBatch


def encode_log_batch(
    body: Sealed | Sequence[BytesLike],
    *,
    schema_id: int,
    record_count: int,
    writer_id: int = NO_WRITER_ID,
    batch_sequence: int = NO_BATCH_SEQUENCE,
    append_only: bool = True,
    change_types: bytes | None = None,
) -> list[BytesLike]:
    """Return a batch as parts to send one after the other; the parts of the body are not copied.

    `crc32c.seal(parts)` computes the checksum of a body once; after that, a new writer id or
    sequence costs microseconds.
    """
    sealed = body if isinstance(body, Sealed) else seal(body)
    delta = max(record_count - 1, 0)
    attributes = _APPEND_ONLY if append_only else 0
    back = _BACK.pack(schema_id, attributes, delta, writer_id, batch_sequence, record_count)
    back += change_types or b""
    length = _FRONT.size - LENGTH_END + len(back) + sealed.size
    front = _FRONT.pack(0, length, 0, 0, sealed.after(back))
    return [front + back, *sealed.parts]


def encode_log_body(
    batch: pa.RecordBatch,
    schema: Schema,
    log_format: str,
    compression: Compression,
    change_types: bytes | None = None,
) -> list[BytesLike]:
    """Return the body of a batch in the table's log format, to be given to `seal`.

    `batch` has the schema's wire types. `change_types` are for changelogs: one byte per row.
    """
    if log_format.upper() != ARROW:
        return [encode_log_records(batch, schema, _row_format(log_format), change_types)]
    body = encode_body(batch, compression)
    return [body] if change_types is None else [change_types, body]


def iter_log_batches(data: BytesLike) -> Iterator[LogBatchHeader]:
    """Return the batches in a fetched or stored stream.

    A batch that is cut off at the end is left out: fetches are cut by size.

    Raises:
        CorruptDataError: The bytes cannot be a batch.
    """
    view = memoryview(data)
    position, end = 0, view.nbytes
    while end - position > MAGIC_AT:
        magic = view[position + MAGIC_AT]
        if magic >= len(_HEADERS):
            raise CorruptDataError(f"a log batch has magic {magic}; known are 0, 1 and 2")
        size = _HEADER_SIZES[magic]
        if end - position < size:
            return
        header, stop = _header(view, position, magic, size)
        if header is None:
            return
        yield header
        position = stop


def _header(
    view: memoryview, position: int, magic: int, size: int
) -> tuple[LogBatchHeader | None, int]:
    """Return the batch at a position and where it stops; None when the stream ends inside it."""
    fields = _HEADERS[magic].unpack_from(view, position)
    base_offset, length, _, commit_timestamp, crc, schema_id, attributes, delta = fields[:8]
    writer_id, sequence, count = fields[8:11]
    statistics = fields[11] if magic else 0
    if base_offset < 0 or count < 0 or delta != (count - 1 if count else 0):
        raise CorruptDataError(
            f"a log batch claims base offset {base_offset}, last delta {delta}, {count} records"
        )
    stop = position + LENGTH_END + length
    body_at = position + size + statistics
    if statistics < 0 or body_at > stop:
        raise CorruptDataError(f"a log batch of length {length} is shorter than its header")
    if stop > view.nbytes:
        return None, stop
    header = LogBatchHeader(
        base_offset,
        base_offset + delta,
        commit_timestamp,
        schema_id,
        writer_id,
        sequence,
        count,
        bool(attributes & _APPEND_ONLY),
        magic,
        crc,
        view[body_at:stop],
        view[position + CRC_FROM[magic] : stop],
    )
    return header, stop


def decode_log_batch(
    header: LogBatchHeader,
    schema: Schema,
    log_format: str = "ARROW",
    projection: Sequence[int] | None = None,
) -> DecodedBatch:
    """Return the rows of a batch.

    Args:
        header: The batch.
        schema: The schema of the batch's schema id.
        log_format: The log format of the table.
        projection: The positions that the server kept (ARROW), or that the result has (row
            formats).

    Raises:
        CorruptDataError: The body does not have what the header says.
    """
    return decode_log_batches([header], schema, log_format, projection)[0]


def decode_log_batches(
    headers: Sequence[LogBatchHeader],
    schema: Schema,
    log_format: str = "ARROW",
    projection: Sequence[int] | None = None,
) -> list[DecodedBatch]:
    """Return the rows of several batches of one schema, in less time than one by one."""
    wire = schema.wire
    if projection is not None:
        wire = pa.schema([wire.field(i) for i in projection])
    filled = [header for header in headers if header.record_count]
    found: Iterable[tuple[npt.NDArray[np.uint8], pa.RecordBatch]]
    if log_format.upper() == ARROW:
        split = [_change_types(header) for header in filled]
        batches = decode_bodies([body for _, body in split], wire)
        found = zip((changes for changes, _ in split), batches, strict=True)
    else:
        row_format = _row_format(log_format)
        kept = None if projection is None else list(projection)
        found = (
            decode_log_records(header.body, header.record_count, schema, row_format, wire, kept)
            for header in filled
        )
    rows = iter([_decoded(header, *one) for header, one in zip(filled, found, strict=True)])
    return [next(rows) if header.record_count else _no_rows(header, wire) for header in headers]


def _decoded(
    header: LogBatchHeader, changes: npt.NDArray[np.uint8], batch: pa.RecordBatch
) -> DecodedBatch:
    count = header.record_count
    if batch.num_rows != count:
        raise CorruptDataError(f"a log batch claims {count} records and holds {batch.num_rows}")
    if changes.size and int(changes.max()) > CHANGE_TYPE_MAX:
        raise CorruptDataError(f"a log batch holds the unknown change type {changes.max()}")
    return DecodedBatch(None if header.append_only else changes, batch)


def _no_rows(header: LogBatchHeader, wire: pa.Schema) -> DecodedBatch:
    changes = None if header.append_only else np.empty(0, np.uint8)
    return DecodedBatch(changes, pa.RecordBatch.from_pylist([], schema=wire))


def _change_types(header: LogBatchHeader) -> tuple[npt.NDArray[np.uint8], memoryview]:
    """Return the change types before an Arrow body, and that body."""
    count = 0 if header.append_only else header.record_count
    if header.body.nbytes < count:
        raise CorruptDataError(f"a changelog batch of {count} records ends in its change types")
    return np.frombuffer(header.body[:count], np.uint8), header.body[count:]


def _row_format(log_format: str) -> RowFormat:
    try:
        return RowFormat[log_format.upper()]
    except KeyError:
        raise UnsupportedError(f"this client does not know the log format '{log_format}'") from None
