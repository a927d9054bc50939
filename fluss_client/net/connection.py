"""One authenticated connection to one server. Answers may come in another order than requests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message

from fluss_client._version import __version__
from fluss_client.config import Config
from fluss_client.errors import (
    AuthenticationError,
    CorruptDataError,
    FlussError,
    without_frames,
)
from fluss_client.net.metrics import Metrics
from fluss_client.net.stream import Stream, timed_out
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.apis import API_VERSIONS, AUTHENTICATE, Api, ApiTable, Served, negotiate
from fluss_client.wire.auth import Credentials, authenticate, mechanism_for
from fluss_client.wire.messages import Buffer, parse
from fluss_client.wire.rpc import RESPONSE_BYTES_MAX, Correlator, encode_request

log = logging.getLogger(__name__)
ResponseT = TypeVar("ResponseT", bound=Message)
CLIENT_NAME = "fluss-orchestrate"


@dataclass(frozen=True, slots=True)
class Address:
    """The host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Connection:
    """A pipelined connection: many requests may wait for answers at once.

    After the first network error it is closed for good; the pool opens a new one.
    """

    def __init__(self, stream: Stream, config: Config, metrics: Metrics) -> None:
        self._stream = stream
        self._config = config
        self._metrics = metrics
        self._correlator: Correlator[asyncio.Future[memoryview]] = Correlator()
        self._apis = ApiTable(stream.peer, {API_VERSIONS.key: 0, AUTHENTICATE.key: 0})
        self.served: Served | None = None
        stream.on_frame = self._on_frame
        stream.on_lost = self._on_lost

    @classmethod
    async def open(cls, address: Address, config: Config, metrics: Metrics) -> Connection:
        """Connect, negotiate versions and authenticate."""
        timeout_s = config.connect_timeout_ms / 1000
        stream = await Stream.connect(address.host, address.port, timeout_s)
        connection = cls(stream, config, metrics)
        stream.start()
        metrics.count("connections.opened")
        try:
            await connection._handshake()
        except BaseException:
            connection.close()
            raise
        log.debug("connected to %s (%s)", stream.peer, connection.served)
        return connection

    async def _handshake(self) -> None:
        hello = pb.ApiVersionsRequest(
            client_software_name=CLIENT_NAME, client_software_version=__version__
        )
        timeout_ms = self._config.connect_timeout_ms
        answer = await self.call(API_VERSIONS, hello, timeout_ms)
        if self._config.security_protocol == "sasl":
            refused = await self._authenticate(timeout_ms)
            if refused is not None:
                raise refused
        self._apis = negotiate(answer.api_versions, self._stream.peer)
        if answer.HasField("server_type"):
            self.served = Served(answer.server_type)
        self._stream.frame_bytes_max = RESPONSE_BYTES_MAX

    async def _authenticate(self, timeout_ms: int) -> BaseException | None:
        """Authenticate; return the error, without its traceback, instead of raising it.

        The frames of these calls hold the password, and error reports may show the values of
        frames. So no error is raised through them, not even a cancellation.
        """
        config = self._config
        try:
            credentials = Credentials(config.security_sasl_username, config.security_sasl_password)
            steps = authenticate(mechanism_for(config.security_sasl_mechanism, credentials))
            step = next(steps)
            while True:
                answer = await self.call(AUTHENTICATE, step.message(), timeout_ms)
                step = steps.send(answer)
        except StopIteration:
            return None
        except BaseException as error:  # noqa: BLE001 - it is raised again by the caller
            return without_frames(error)

    @property
    def peer(self) -> str:
        """`host:port` of the server."""
        return self._stream.peer

    @property
    def closed(self) -> bool:
        """Whether the connection was closed."""
        return self._stream.closed

    def supports(self, api: Api[Any, Any]) -> bool:
        """Return whether this server supports the call."""
        return self._apis.supports(api)

    def version(self, api: Api[Any, Any]) -> int:
        """Return the version in which a call is sent to this server.

        Raises:
            UnsupportedByServerError: The server does not support the call.
        """
        return self._apis.version(api)

    @property
    def takes_bucket_counts(self) -> bool:
        """Whether requests to this server say by which bucket count they were made."""
        return self._apis.takes_bucket_counts

    async def call(
        self, api: Api[Any, ResponseT], request: Message, timeout_ms: float | None = None
    ) -> ResponseT:
        """Send a message and return the parsed answer."""
        body = await self.request(api, [request.SerializeToString()], timeout_ms)
        try:
            return parse(api.response, body)
        except CorruptDataError as error:
            error.message = f"{self.peer}: {error.message}; is this address a Fluss server?"
            raise

    async def request(
        self, api: Api[Any, Any], parts: Sequence[Buffer], timeout_ms: float | None = None
    ) -> memoryview:
        """Send buffers and return the body of the answer.

        Cancelling stops the waiting only: the server still handles the request.
        """
        version = self._apis.version(api)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[memoryview] = loop.create_future()
        request_id = self._correlator.register(future)
        limit_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        started = time.perf_counter()
        error: str | None = None
        timer = loop.call_later(limit_ms / 1000, self._expire, request_id, api.name, limit_ms)
        try:
            self._stream.send(encode_request(api.key, version, request_id, parts))
            return await future
        except AuthenticationError as failure:
            error = type(failure).__name__
            raise AuthenticationError(self._explained(failure)) from None
        except FlussError as failure:
            error = type(failure).__name__
            raise
        except asyncio.CancelledError:
            error = "cancelled"
            raise
        finally:
            timer.cancel()
            self._correlator.forget(request_id)
            self._metrics.record(api.name, self.peer, time.perf_counter() - started, error)

    def _explained(self, refusal: AuthenticationError) -> str:
        said = f"{self.peer} refused the client: {refusal.message.rstrip('.')}."
        if self._config.security_protocol != "sasl":
            return (
                f"{said} It asks for SASL: set security.protocol=sasl, security.sasl.username and "
                "security.sasl.password, or use the address of a plaintext listener"
            )
        user = self._config.security_sasl_username
        return (
            f"{said} Check security.sasl.username ('{user}') and security.sasl.password, and that "
            "the address is that of a SASL listener"
        )

    def close(self) -> None:
        """Close the connection; pending requests fail."""
        self._stream.close()

    def _expire(self, request_id: int, name: str, limit_ms: float) -> None:
        future = self._correlator.forget(request_id)
        if future is not None and not future.done():
            future.set_exception(timed_out(name, self.peer, int(limit_ms)))

    def _on_frame(self, frame: memoryview) -> None:
        answer = self._correlator.resolve(frame)
        if answer is None or answer.token.done():
            return
        if isinstance(answer.outcome, FlussError):
            answer.token.set_exception(answer.outcome)
        else:
            answer.token.set_result(answer.outcome)

    def _on_lost(self, error: FlussError) -> None:
        self._metrics.count("connections.closed")
        self._metrics.count("bytes.sent", self._stream.bytes_sent)
        self._metrics.count("bytes.received", self._stream.bytes_received)
        for answer in self._correlator.fail_all(error):
            if not answer.token.done():
                answer.token.set_exception(error)

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received; (0, 0) after the connection was closed."""
        if self._stream.closed:
            return 0, 0
        return self._stream.bytes_sent, self._stream.bytes_received
