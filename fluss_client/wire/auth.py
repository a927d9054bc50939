"""SASL authentication of one connection, as steps without I/O.

Every connection authenticates after ApiVersions, before any other call. The client sends its first
token; the server answers with a challenge until it accepts:

    AuthenticateRequest { 1 protocol: mechanism name, 2 token }
    AuthenticateResponse{ 1 challenge }

PLAIN (RFC 4616) has one round. Its token is an empty authorization id, 00, the user, 00, the
password, in UTF-8; a present but empty challenge answers it and means success. A refusal is an
error frame: code 46 (final) or 51 (retry after a pause).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from fluss_client.errors import AuthenticationError, ConfigError
from fluss_client.wire import fluss_pb2 as pb

# Bounds a handshake that never ends.
ROUNDS_MAX = 16


@dataclass(frozen=True, slots=True)
class Credentials:
    """User name and password. `repr` does not show the password."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AuthStep:
    """One token to send; `message()` makes the request. `repr` does not show the token."""

    protocol: str
    token: bytes = field(repr=False)

    def message(self) -> pb.AuthenticateRequest:
        """Return the request. Its text shows the token, so it must not be logged."""
        return pb.AuthenticateRequest(protocol=self.protocol, token=self.token)


class Mechanism(Protocol):
    """One SASL mechanism; an object is used for one handshake."""

    @property
    def name(self) -> str:
        """The name of the mechanism in the protocol."""

    def first_token(self) -> bytes:
        """Return the first token; empty if the server sends the first challenge."""

    def next_token(self, challenge: bytes | None) -> bytes | None:
        """Return the answer to a challenge, or None if the handshake is complete.

        `challenge` is None if the server sent none. Raises `AuthenticationError` if the challenge
        cannot be answered.
        """


def _usable(text: str) -> bool:
    return bool(text) and "\0" not in text


class Plain:
    """The PLAIN mechanism."""

    name = "PLAIN"

    def __init__(self, credentials: Credentials) -> None:
        for what, usable in (
            ("user", _usable(credentials.username)),
            ("password", _usable(credentials.password)),
        ):
            if not usable:
                raise ConfigError(f"SASL/PLAIN needs a {what} that is not empty and has no NUL")
        self._credentials = credentials

    def __repr__(self) -> str:
        return f"Plain({self._credentials.username!r})"

    def first_token(self) -> bytes:
        return f"\0{self._credentials.username}\0{self._credentials.password}".encode()

    def next_token(self, challenge: bytes | None) -> bytes | None:
        if challenge:
            raise AuthenticationError("the server answered SASL/PLAIN with a challenge")
        return None


MECHANISMS: Mapping[str, Callable[[Credentials], Mechanism]] = MappingProxyType({"PLAIN": Plain})


def mechanism_for(name: str, credentials: Credentials) -> Mechanism:
    """Return a new mechanism by name, in upper or lower case; raise `ConfigError` if unknown."""
    factory = MECHANISMS.get(name.upper())
    if factory is None:
        known = ", ".join(sorted(MECHANISMS))
        raise ConfigError(f"unknown SASL mechanism {name!r}; this client knows {known}")
    return factory(credentials)


def authenticate(mechanism: Mechanism) -> Generator[AuthStep, pb.AuthenticateResponse, None]:
    """Yield each token to send and receive the server's answer; return when it is complete.

    The caller sends each token and passes the parsed response back with `send`. After an error
    frame it closes the generator. Raises `AuthenticationError` if the mechanism cannot answer a
    challenge.
    """
    token: bytes | None = mechanism.first_token()
    for _ in range(ROUNDS_MAX):
        assert token is not None
        response = yield AuthStep(mechanism.name, token)
        challenge = response.challenge if response.HasField("challenge") else None
        token = mechanism.next_token(challenge)
        if token is None:
            return
        if challenge is None:
            raise AuthenticationError(
                f"the server ended SASL/{mechanism.name} before the handshake was complete"
            )
    raise AuthenticationError(f"SASL/{mechanism.name} is not done after {ROUNDS_MAX} rounds")
