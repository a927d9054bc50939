"""Requests and responses of one connection: their frames, and which answer is whose. No I/O.

The byte layout of frames; all integers are big endian:

    request   int32 length | int16 api_key | int16 api_version | int32 request_id | message
    response  int32 length | int8 type | ...
                type 0  int32 request_id | response message
                type 1  int32 request_id | ErrorResponse
                type 2  ErrorResponse of no request; the server closes the connection after it

`length` counts the bytes after itself. No payload is copied here: a request is a list of buffers, a
response body is a view into the received frame.

A connection numbers its requests from 0, and answers may come in any order. The sender of a request
registers a token (such as a future) with the `Correlator` and gets it back with the answer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fluss_client.errors import ClientError, CorruptDataError, FlussError, RecordTooLargeError
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.messages import Buffer, byte_count, byte_view, parse, server_error

LENGTH_BYTES = 4
REQUEST_HEADER_BYTES = 12
# The server's default of `netty.server.max-request-size`; it counts the length field too.
REQUEST_BYTES_MAX = 100 * 1024 * 1024
# The largest value of the length field; one limit scan may return all rows of a bucket.
RESPONSE_BYTES_MAX = 2**31 - 1
# Before the handshake is complete, the peer may be another kind of server, and the length must not
# decide how much is allocated (an HTTP answer reads as 1.2 GB). A handshake answer of a real server
# has about 300 bytes.
HANDSHAKE_BYTES_MAX = 1024 * 1024

SUCCESS, REQUEST_FAILURE, SERVER_FAILURE = 0, 1, 2

_LENGTH = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">ihhi")
_REQUEST_ID = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Success:
    """The answer to one request; `body` is a view into the frame."""

    request_id: int
    body: memoryview


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of one request, or of the whole connection if `request_id` is None."""

    request_id: int | None
    error: FlussError


def encode_request(
    api_key: int, api_version: int, request_id: int, body_parts: Sequence[Buffer]
) -> list[Buffer]:
    """Return the frame of one request as buffers: a 12-byte header, then `body_parts`.

    Raises `RecordTooLargeError` if the frame is larger than servers accept.
    """
    frame_bytes = REQUEST_HEADER_BYTES + byte_count(body_parts)
    if frame_bytes > REQUEST_BYTES_MAX:
        raise RecordTooLargeError(
            f"a request of {frame_bytes} bytes exceeds the {REQUEST_BYTES_MAX} that a server "
            "takes; send fewer or smaller batches in one request"
        )
    header = _REQUEST_HEADER.pack(frame_bytes - LENGTH_BYTES, api_key, api_version, request_id)
    return [header, *body_parts]


def decode_length(prefix: Buffer, bytes_max: int = RESPONSE_BYTES_MAX) -> int:
    """Return the length of a response frame from its first four bytes, before it is allocated.

    Raises `CorruptDataError` if a response cannot have that length.
    """
    if len(prefix) != LENGTH_BYTES:
        raise CorruptDataError(f"a length field has {LENGTH_BYTES} bytes, not {len(prefix)}")
    length: int = _LENGTH.unpack(prefix)[0]
    if not 1 <= length <= bytes_max:
        raise CorruptDataError(
            f"a response of {length} bytes is outside 1 to {bytes_max}: "
            "is this address a Fluss server?"
        )
    return length


def decode_response(frame: Buffer) -> Success | Failure:
    """Decode one response frame without its length field.

    A failure whose message cannot be read is a `Failure` with `CorruptDataError`. Raises
    `CorruptDataError` if the frame itself is not valid; the connection must be closed then.
    """
    view = byte_view(frame)
    if not view:
        raise CorruptDataError("a response frame is empty")
    kind = view[0]
    if kind == SERVER_FAILURE:
        return Failure(None, _read_error(view[1:]))
    if kind not in (SUCCESS, REQUEST_FAILURE):
        raise CorruptDataError(f"a response of type {kind} is unknown")
    body_at = 1 + _REQUEST_ID.size
    if len(view) < body_at:
        raise CorruptDataError(f"a response frame of {len(view)} bytes has no request id")
    request_id: int = _REQUEST_ID.unpack_from(view, 1)[0]
    if kind == SUCCESS:
        return Success(request_id, view[body_at:])
    return Failure(request_id, _read_error(view[body_at:]))


def _read_error(body: memoryview) -> FlussError:
    try:
        answer = parse(pb.ErrorResponse, body)
    except CorruptDataError as error:
        return error
    return server_error(answer.error_code, answer.error_message or None)


TokenT = TypeVar("TokenT")

REQUEST_ID_LIMIT = 2**31
PENDING_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Answer(Generic[TokenT]):
    """The token of a request and its outcome: the body of the response, or the error."""

    token: TokenT
    outcome: memoryview | FlussError


class Correlator(Generic[TokenT]):
    """The pending requests of one connection.

    After `fail_all` the connection is closed: `register` raises the error given there.
    """

    def __init__(self, first_request_id: int = 0) -> None:
        self._next_id = first_request_id % REQUEST_ID_LIMIT
        self._pending: dict[int, TokenT] = {}
        self._failure: FlussError | None = None
        self._late_count = 0

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def failure(self) -> FlussError | None:
        """Why the connection was closed, or None while it is open."""
        return self._failure

    @property
    def late_count(self) -> int:
        """How many answers came after the caller had stopped waiting."""
        return self._late_count

    def register(self, token: TokenT) -> int:
        """Keep `token` until its answer comes and return the request id to send.

        Raises `ClientError` if `PENDING_MAX` requests are pending, and the error of the connection
        if it was closed.
        """
        if self._failure is not None:
            raise self._failure
        if len(self._pending) >= PENDING_MAX:
            raise ClientError(
                f"{PENDING_MAX} requests of this connection wait for an answer; "
                "wait for some before sending more"
            )
        request_id = self._next_id
        while request_id in self._pending:
            request_id = (request_id + 1) % REQUEST_ID_LIMIT
        self._next_id = (request_id + 1) % REQUEST_ID_LIMIT
        self._pending[request_id] = token
        return request_id

    def forget(self, request_id: int) -> TokenT | None:
        """Stop waiting, for example after a timeout; a later answer is ignored."""
        return self._pending.pop(request_id, None)

    def resolve(self, frame: Buffer) -> Answer[TokenT] | None:
        """Return the token and outcome of the request that `frame` answers.

        Returns None if the caller has stopped waiting. Raises an error that concerns the whole
        connection: the server's error of a type 2 frame, or `CorruptDataError` if the frame is not
        valid. Pass it to `fail_all` and close the connection.
        """
        response = decode_response(frame)
        if response.request_id is None:
            raise response.error
        if response.request_id not in self._pending:
            self._late_count += 1
            return None
        token = self._pending.pop(response.request_id)
        return Answer(token, response.body if isinstance(response, Success) else response.error)

    def fail_all(self, error: FlussError) -> list[Answer[TokenT]]:
        """Close the connection with `error` and return every pending request with it, once."""
        if self._failure is None:
            self._failure = error
        failed: list[Answer[TokenT]] = [Answer(token, error) for token in self._pending.values()]
        self._pending.clear()
        return failed
