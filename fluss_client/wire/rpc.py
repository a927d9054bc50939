"""Matches the answers of one connection to its requests; a state machine without I/O.

A connection numbers its requests from 0, and answers may come in any order. The sender of a request
registers a token (such as a future) and gets it back with the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from fluss_client.errors import ClientError, FlussError
from fluss_client.wire.framing import Success, decode_response
from fluss_client.wire.messages import Buffer

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
