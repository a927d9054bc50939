"""A store that misbehaves: an HTTP proxy on loopback before a real S3 server or catalog.

It forwards each request with its own signature, or lets a fault strike it. It also does what the
local S3 server cannot: it refuses session tokens that have ended, and speaks as AWS does about
permissions and regions.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from tests.waiting import let_pass_async

T = TypeVar("T")
HOST = "127.0.0.1"
KINDS = ("throttle", "cut", "cut the answer", "slow")
CUT_SIZE = "cut the size"
"""The answer ends before it says the size of the object. Arrow takes it for an empty object."""
SLOW_S = 0.3
_ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>"


class FaultyStore:
    """A proxy before one HTTP server; every request is well served until told otherwise."""

    def __init__(self, endpoint: str, seed: int = 0) -> None:
        parts = urlsplit(endpoint)
        self._server = (parts.hostname or HOST, parts.port or 80)
        self.random = random.Random(seed)
        self.chance = 0.0
        """The part of the requests that a fault of `kinds` strikes."""
        self.kinds: tuple[str, ...] = KINDS
        self.struck: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.tokens: set[str] = set()
        """The session tokens that were seen."""
        self.refused_tokens = 0
        self.answer: tuple[int, str, str] | None = None
        """A status, code and text with which every request is refused."""
        self.shift_s = 0.0
        """How wrong the clock of the client is, as the server sees it."""
        self.bearer: str | None = None
        """What the header Authorization must have, for a catalog with tokens."""
        self.twice: str | None = None
        """The requests, by method and path, that are sent twice: the first answer is lost, the
        second one is passed on. Gateways do so after a time limit."""
        self.last: str | None = None
        """The last request that is served, by method and path; its answer is lost, and every
        request after it is refused."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store", daemon=True)
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = self._run(asyncio.start_server(self._accepted, HOST, 0))
        port = self._listener.sockets[0].getsockname()[1]
        self.endpoint = f"http://{HOST}:{port}"

    def close(self) -> None:
        """Stop; connections end."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _close(self) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request; the client then opens another connection."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if re.search(rb"(?im)^expect: *100-continue", head):
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = await _body(reader, head)
            await self._answer(head, body, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        method = head.partition(b" ")[0].decode()
        self.requests[method] += 1
        refusal = self._refusal(head)
        fault = ""
        if refusal is None and self.random.random() < self.chance:
            fault = self.random.choice(self.kinds)
        if fault == CUT_SIZE and method != "HEAD":
            fault = ""
        if fault:
            self.struck[fault] += 1
        if fault == "throttle":
            refusal = (503, "SlowDown", "Please reduce your request rate.")
        if refusal is not None:
            status, code, text = refusal
            content = b"" if method == "HEAD" else _ERROR.format(code=code, text=text).encode()
            writer.write(
                f"HTTP/1.1 {status} Refused\r\nContent-Type: application/xml\r\n"
                f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode()
                + content
            )
            await writer.drain()
            return
        if fault == "cut":
            writer.transport.abort()
            return
        if fault == "slow":
            await let_pass_async(SLOW_S, "the fault is a slow answer")
        if self.twice and re.match(self.twice, head.decode("latin-1")):
            self.struck["twice"] += 1
            await self._forwarded(head, body)
        answer = await self._forwarded(head, body)
        if self.last and re.match(self.last, head.decode("latin-1")):
            self.answer = (503, "Unavailable", "The server is down.")
            fault = "cut the answer"
        if fault == CUT_SIZE:
            writer.write(answer[: answer.lower().index(b"content-length")])
            await writer.drain()
            return
        if fault == "cut the answer":
            # The server has done what was asked, and the client does not get to know it.
            writer.write(answer[: self.random.randrange(len(answer))])
            await writer.drain()
            writer.transport.abort()
            return
        writer.write(answer)
        await writer.drain()

    def _refusal(self, head: bytes) -> tuple[int, str, str] | None:
        found = re.search(rb"(?im)^x-amz-security-token: *(\S+)", head)
        if found:
            token = found[1].decode()
            self.tokens.add(token)
            until = re.match(r"until-([0-9.]+)-", token)
            if until and time.time() > float(until[1]):
                self.refused_tokens += 1
                return 400, "ExpiredToken", "The provided token has expired."
        if self.bearer is not None and b"/oauth/tokens" not in head.split(b"\r\n")[0]:
            given = re.search(rb"(?im)^authorization: *(.+?)\r\n", head)
            if given is None or not re.fullmatch(self.bearer, given[1].decode()):
                return 401, "NotAuthorized", "no token"
        return self.answer

    async def _forwarded(self, head: bytes, body: bytes) -> bytes:
        lines = [
            line
            for line in head.rstrip(b"\r\n").split(b"\r\n")
            if not line.lower().startswith((b"connection:", b"expect:", b"transfer-encoding:"))
        ]
        if self.shift_s:
            lines = [self._shifted(line) for line in lines]
        if body and not any(line.lower().startswith(b"content-length:") for line in lines):
            lines.append(f"Content-Length: {len(body)}".encode())
        reader, writer = await asyncio.open_connection(*self._server)
        try:
            writer.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]) + body)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()

    def _shifted(self, line: bytes) -> bytes:
        if not line.lower().startswith(b"x-amz-date:"):
            return line
        wrong = time.gmtime(time.time() + self.shift_s)
        return b"x-amz-date: " + time.strftime("%Y%m%dT%H%M%SZ", wrong).encode()


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    length = re.search(rb"(?im)^content-length: *(\d+)", head)
    if length:
        return await reader.readexactly(int(length[1]))
    if not re.search(rb"(?im)^transfer-encoding: *chunked", head):
        return b""
    body = b""
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        chunk = await reader.readexactly(size + 2)
        if size == 0:
            return body
        body += chunk[:-2]


@pytest.fixture
def make_store() -> Iterator[Callable[..., FaultyStore]]:
    """Put a proxy before a server of HTTP: `make_store(endpoint, seed)`; gone afterwards."""
    made: list[FaultyStore] = []

    def make(endpoint: str, seed: int = 0) -> FaultyStore:
        made.append(FaultyStore(endpoint, seed))
        return made[-1]

    yield make
    for store in made:
        store.close()
