"""Lines that can be cut: a proxy on loopback before every server of a real cluster.

The proxies know frames, so a fault strikes one call, in its request or in its answer. They write
their own addresses into the metadata that servers hand out; so a client that was given
`bootstrap_servers` reaches every server through them.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from tests.waiting import let_pass_async

T = TypeVar("T")
HOST = "127.0.0.1"
KINDS = (
    "delay",
    "trickle",
    "drop",
    "truncate",
    "corrupt",
    "half-close",
    "stall",
    "cut",
    "reorder",
    "duplicate",
)
DELAY_S = 0.15
TRICKLE_PIECES = 8
_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_ANSWER = struct.Struct(">bi")
_ABORT = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Fault:
    """What goes wrong: at which call, in the request or in the answer, and how often."""

    kind: str
    api: int | None = None
    """Only at this call; None strikes any."""
    in_request: bool = False
    times: int | None = 1
    """None goes on until `restore`."""
    chance: float = 1.0

    def __post_init__(self) -> None:
        assert self.kind in KINDS


@dataclass(eq=False)
class _Line:
    """One connection of the client, and the one to the server behind it."""

    client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    server: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    asked: dict[int, int] = field(default_factory=dict)
    """Which call each request id is."""
    calls: list[int] = field(default_factory=list)
    """What was asked on this line, in order."""
    held: bytes = b""
    """An answer that the next one overtakes."""

    def cut(self) -> None:
        """End both sides at once, as a router that reboots does."""
        for _, writer in (self.client, self.server):
            raw = writer.get_extra_info("socket")
            if raw is not None and raw.fileno() >= 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            writer.transport.abort()


class FaultyLines:
    """Proxies before the servers of one cluster; all lines are whole until told otherwise."""

    def __init__(self, bootstrap_servers: str, seed: int = 0) -> None:
        self.struck: Counter[tuple[str, int]] = Counter()
        """How often each fault struck each call."""
        self.histories: list[list[int]] = []
        """The calls of each line that ever stood, in order."""
        self.random = random.Random(seed)
        self._faults: list[Fault] = []
        self._lines: set[_Line] = set()
        self._listeners: dict[tuple[str, int], asyncio.Server] = {}
        self._refusing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._flowing = self._run(_set_event())
        wanted = [address.rpartition(":") for address in bootstrap_servers.split(",")]
        ports = [self._run(self._port_for(host, int(port))) for host, _, port in wanted]
        self.bootstrap_servers = ",".join(f"{HOST}:{port}" for port in ports)

    def inject(self, *faults: Fault) -> None:
        """From now on these faults strike, beside those that are still to come."""
        self._call(lambda: self._faults.extend(faults))

    def cut(self) -> None:
        """End every line and refuse new ones until `restore`."""

        def now() -> None:
            self._refusing = True
            for line in list(self._lines):
                line.cut()

        self._call(now)

    def restore(self) -> None:
        """All is well again: what was stalled flows on, nothing strikes any more."""

        def now() -> None:
            self._refusing = False
            self._faults.clear()
            self._flowing.set()

        self._call(now)

    def resume(self) -> None:
        """What was stalled flows on; faults go on striking."""
        self._call(self._flowing.set)

    @property
    def open_lines(self) -> int:
        """How many connections stand."""
        return len(self._lines)

    def close(self) -> None:
        """Stop; the clients' connections end."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _call(self, work: Callable[[], None]) -> None:
        async def run() -> None:
            work()

        self._run(run())

    async def _close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        for line in list(self._lines):
            line.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _port_for(self, host: str, port: int) -> int:
        """The port of the proxy before that server."""
        if (host, port) not in self._listeners:

            def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = self._loop.create_task(self._serve(host, port, reader, writer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

            self._listeners[host, port] = await asyncio.start_server(accepted, HOST, 0)
        opened: int = self._listeners[host, port].sockets[0].getsockname()[1]
        return opened

    async def _serve(
        self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            server = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        line = _Line((reader, writer), server)
        if self._refusing:
            line.cut()
            return
        self._lines.add(line)
        self.histories.append(line.calls)
        try:
            await asyncio.gather(self._requests(line), self._answers(line))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._lines.discard(line)
            for _, side in (line.client, line.server):
                side.close()

    async def _requests(self, line: _Line) -> None:
        while True:
            frame = await _frame(line.client[0])
            if not frame:
                line.server[1].close()
                return
            api, _, request_id = _REQUEST.unpack_from(frame, _LENGTH.size)
            line.asked[request_id] = api
            line.calls.append(api)
            await self._forward(line, line.server[1], frame, api, in_request=True)

    async def _answers(self, line: _Line) -> None:
        while True:
            frame = await _frame(line.server[0])
            if not frame:
                line.client[1].close()
                return
            kind, request_id = _ANSWER.unpack_from(frame, _LENGTH.size)
            api = line.asked.pop(request_id, 0)
            if api == apis.GET_METADATA.key and kind == 0:
                frame = await self._with_own_addresses(frame)
            await self._forward(line, line.client[1], frame, api, in_request=False)

    async def _with_own_addresses(self, frame: bytes) -> bytes:
        start = _LENGTH.size + _ANSWER.size
        metadata = pb.MetadataResponse.FromString(frame[start:])
        nodes = list(metadata.tablet_servers)
        if metadata.HasField("coordinator_server"):
            nodes.append(metadata.coordinator_server)
        for node in nodes:
            node.port = await self._port_for(node.host, node.port)
            node.host = HOST
        body = metadata.SerializeToString()
        return _LENGTH.pack(_ANSWER.size + len(body)) + frame[_LENGTH.size : start] + body

    def _next_fault(self, api: int, in_request: bool) -> Fault | None:
        for fault in self._faults:
            if fault.in_request != in_request or fault.api not in (None, api):
                continue
            if self.random.random() >= fault.chance:
                continue
            self.struck[fault.kind, api] += 1
            if fault.times is not None:
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
            return fault
        return None

    async def _forward(
        self, line: _Line, to: asyncio.StreamWriter, frame: bytes, api: int, *, in_request: bool
    ) -> None:
        await self._flowing.wait()
        fault = self._next_fault(api, in_request)
        kind = "" if fault is None else fault.kind
        if kind == "drop":
            return
        if kind == "cut":
            line.cut()
            return
        if kind == "stall":
            self._flowing.clear()
            await self._flowing.wait()
        elif kind == "delay":
            await let_pass_async(DELAY_S, "the fault is a delay")
        elif kind == "corrupt":
            frame = self._corrupted(frame)
        elif kind == "truncate":
            to.write(frame[: self.random.randrange(1, len(frame))])
            await to.drain()
            line.client[1].close()
            line.server[1].close()
            return
        elif kind == "half-close":
            to.write_eof()
            return
        elif kind == "duplicate":
            to.write(frame)
        elif kind == "reorder" and not line.held:
            line.held = frame
            self._loop.call_later(DELAY_S, _release, line, to)
            return
        if kind == "trickle":
            size = max(1, len(frame) // TRICKLE_PIECES)
            for start in range(0, len(frame), size):
                to.write(frame[start : start + size])
                await let_pass_async(DELAY_S / TRICKLE_PIECES, "the fault is a slow line")
        elif not to.is_closing():
            to.write(frame)
        if line.held and not in_request:
            _release(line, to)
        if not to.is_closing():
            await to.drain()

    def _corrupted(self, frame: bytes) -> bytes:
        """One bit is flipped in the last third: there lie the batches, whose sums must tell."""
        damaged = bytearray(frame)
        at = self.random.randrange(max(len(frame) * 2 // 3, _LENGTH.size), len(frame))
        damaged[at] ^= 1 << self.random.randrange(8)
        return bytes(damaged)


def _release(line: _Line, to: asyncio.StreamWriter) -> None:
    held, line.held = line.held, b""
    if held and not to.is_closing():
        to.write(held)


async def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """The next frame with its length; empty when the line ends here."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        return head + await reader.readexactly(_LENGTH.unpack(head)[0])
    except asyncio.IncompleteReadError:
        return b""


@pytest.fixture
def make_lines() -> Iterator[Callable[..., FaultyLines]]:
    """Put proxies before a cluster: `make_lines(bootstrap_servers, seed)`; gone afterwards."""
    made: list[FaultyLines] = []

    def make(bootstrap_servers: str, seed: int = 0) -> FaultyLines:
        made.append(FaultyLines(bootstrap_servers, seed))
        return made[-1]

    yield make
    for lines in made:
        lines.close()
