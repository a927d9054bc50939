"""A stand-in for the Security Token Service of AWS, for clusters on this machine.

    python -m fluss_client.testing.token_service PORT FILE

It answers `GetSessionToken` and `AssumeRole` with the key of the local S3 store, a session token
and the time when that ends. The store knows no sessions, so it takes the key for longer; the
session token says its end in clear, for tests that refuse it afterwards. FILE has the key and the
life of tokens and is read for each answer.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

_BODY_BYTES_MAX = 1 << 16
_ANSWER = """<{action}Response>
<{action}Result><Credentials><AccessKeyId>{access_key}</AccessKeyId>
<SecretAccessKey>{secret_key}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{expiration}</Expiration></Credentials></{action}Result>
<ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata></{action}Response>"""


class _Handler(BaseHTTPRequestHandler):
    key_file: Path

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length") or 0), _BODY_BYTES_MAX)
        form = parse_qs(self.rfile.read(length).decode())
        action = form.get("Action", [""])[0]
        if action not in ("GetSessionToken", "AssumeRole"):
            error = "<Error><Code>InvalidAction</Code></Error>"
            self._send(400, f"<ErrorResponse>{error}</ErrorResponse>")
            return
        given = json.loads(self.key_file.read_bytes())
        ends_s = time.time() + given["life_s"]
        expiration = datetime.fromtimestamp(ends_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        answer = _ANSWER.format(
            action=action,
            access_key=given["access_key"],
            secret_key=given["secret_key"],
            token=f"until-{ends_s:.3f}-{uuid.uuid4().hex}",
            expiration=expiration,
            request=uuid.uuid4(),
        )
        self._send(200, answer)

    def do_GET(self) -> None:
        self._send(200, "<Ready/>")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Requests are not logged."""

    def _send(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve until the process is ended."""
    _Handler.key_file = Path(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()


if __name__ == "__main__":
    main()
