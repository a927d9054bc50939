"""A socket that sends lists of buffers and receives complete frames, without copying large ones.

It registers the socket with the event loop itself, because asyncio's transports copy what the
kernel does not accept at once and deliver received bytes in parts. Small frames are copied out of
one scratch buffer. A frame that does not fit there is received directly into memory of its own from
Arrow's pool, which reuses memory between frames.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from fluss_client.errors import ConnectError, FlussError, NetworkError, TimedOutError
from fluss_client.wire.messages import Buffer
from fluss_client.wire.rpc import HANDSHAKE_BYTES_MAX, LENGTH_BYTES, decode_length

SCRATCH_BYTES = 64 * 1024
IOV_MAX = 64
SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
# After this many reads in a row the loop serves other sockets.
READS_PER_CALLBACK = 16


class Stream:
    """One TCP connection.

    `on_frame` is called with every frame, `on_lost` once with the reason why the connection ended.
    """

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, peer: str) -> None:
        self.peer = peer
        self.on_frame: Callable[[memoryview], None] = lambda frame: None
        self.on_lost: Callable[[FlussError], None] = lambda error: None
        self.frame_bytes_max = HANDSHAKE_BYTES_MAX
        self.bytes_sent = 0
        self.bytes_received = 0
        self._sock = sock
        self._loop = loop
        self._out: deque[memoryview] = deque()
        self._writing = False
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._filled = 0
        self._frame: memoryview | None = None
        self._frame_filled = 0
        self._closed = False

    @classmethod
    async def connect(cls, host: str, port: int, timeout_s: float) -> Stream:
        """Open a connection.

        Raises:
            ConnectError: It failed or took longer than the timeout; the message names the address.
        """
        loop = asyncio.get_running_loop()
        peer = f"{host}:{port}"
        sock: socket.socket | None = None
        try:
            async with asyncio.timeout(timeout_s):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                family, kind, proto, _, address = found[0]
                sock = socket.socket(family, kind, proto)
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
                await loop.sock_connect(sock, address)
        except TimeoutError:
            _close_quietly(sock)
            raise ConnectError(f"{peer} did not answer within {timeout_s:g} s") from None
        except (OSError, UnicodeError) as error:
            _close_quietly(sock)
            raise ConnectError(f"cannot connect to {peer}: {_reason(error)}") from None
        except BaseException:
            _close_quietly(sock)
            raise
        return cls(sock, loop, peer)

    def start(self) -> None:
        """Start receiving; set the callbacks before."""
        self._loop.add_reader(self._sock, self._readable)

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self._closed

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send the parts in order; what the kernel does not accept now is sent later."""
        if self._closed:
            raise NetworkError(f"the connection to {self.peer} is closed")
        self._out.extend(memoryview(part).cast("B") for part in parts if len(part))
        if not self._writing:
            self._writable()

    def close(self, error: FlussError | None = None) -> None:
        """Close the connection and call `on_lost` with the reason, once."""
        if self._closed:
            return
        self._closed = True
        loop_lives = not self._loop.is_closed()
        if loop_lives:
            self._loop.remove_reader(self._sock)
            if self._writing:
                self._loop.remove_writer(self._sock)
        self._sock.close()
        self._out.clear()
        self._frame = None
        if loop_lives:  # on a closed loop no caller waits any more
            self.on_lost(error or NetworkError(f"the connection to {self.peer} was closed"))

    def _writable(self) -> None:
        out = self._out
        try:
            while out:
                sent = self._sock.sendmsg([out[i] for i in range(min(len(out), IOV_MAX))])
                self.bytes_sent += sent
                while sent:
                    head = out[0]
                    if sent < len(head):
                        out[0] = head[sent:]
                        break
                    sent -= len(head)
                    out.popleft()
        except (BlockingIOError, InterruptedError):
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._sock, self._writable)
            return
        except OSError as error:
            self.close(NetworkError(f"sending to {self.peer} failed: {error.strerror or error}"))
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock)

    def _readable(self) -> None:
        try:
            for _ in range(READS_PER_CALLBACK):
                if self._closed or not self._receive():
                    return
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(
                NetworkError(f"receiving from {self.peer} failed: {error.strerror or error}")
            )
        except FlussError as error:
            error.message = f"{self.peer}: {error.message}"
            self.close(error)

    def _receive(self) -> bool:
        """Read once; return False if there is no more to read now, or the peer closed."""
        frame = self._frame
        if frame is not None:
            count = self._sock.recv_into(frame[self._frame_filled :])
            if count:
                self.bytes_received += count
                self._frame_filled += count
                if self._frame_filled == len(frame):
                    self._frame = None
                    self.on_frame(frame)
                return True
        else:
            room = self._scratch[self._filled :]
            count = self._sock.recv_into(room)
            if count:
                self.bytes_received += count
                self._filled += count
                self._cut_frames()
                return count == len(room)
        self.close(NetworkError(f"{self.peer} closed the connection"))
        return False

    def _cut_frames(self) -> None:
        scratch, start, end = self._scratch, 0, self._filled
        while end - start >= LENGTH_BYTES and not self._closed:
            length = decode_length(scratch[start : start + LENGTH_BYTES], self.frame_bytes_max)
            body = start + LENGTH_BYTES
            if end - body >= length:
                # The scratch buffer is reused, so the frame is copied.
                self.on_frame(memoryview(bytes(scratch[body : body + length])))
                start = body + length
                continue
            if length + LENGTH_BYTES > SCRATCH_BYTES // 2:
                self._frame = memoryview(pa.allocate_buffer(length)).cast("B")
                self._frame_filled = end - body
                self._frame[: end - body] = scratch[body:end]
                start = end
            break
        if start:
            rest = end - start
            scratch[:rest] = bytes(scratch[start:end])
            self._filled = rest


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return "this is not a host name"
    # asyncio puts the address into `strerror`; only errors of name look-ups have a text there.
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _close_quietly(sock: socket.socket | None) -> None:
    if sock is not None:
        sock.close()


def timed_out(what: str, peer: str, timeout_ms: int) -> TimedOutError:
    """Return the error of a request that got no answer in time."""
    return TimedOutError(f"{what} got no answer from {peer} within {timeout_ms} ms")
