"""The SASL steps."""

from __future__ import annotations

import pytest

from fluss_client.errors import AuthenticationError, ConfigError
from fluss_client.wire import auth
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.auth import Credentials, Plain, authenticate, mechanism_for

WHO = Credentials("jörg", "s3cret")


class Chat:
    """Answers every challenge with its reverse until the server says `bye`."""

    name = "CHAT"

    def first_token(self) -> bytes:
        return b""

    def next_token(self, challenge: bytes | None) -> bytes | None:
        return None if challenge == b"bye" else (challenge or b"?")[::-1]


def challenge(token: bytes | None) -> pb.AuthenticateResponse:
    return pb.AuthenticateResponse(challenge=token)


def test_plain_token_and_message() -> None:
    step = next(authenticate(Plain(WHO)))
    assert step.token == "\0jörg\0s3cret".encode()
    assert step.message() == pb.AuthenticateRequest(protocol="PLAIN", token=step.token)


@pytest.mark.parametrize("answer", [challenge(b""), challenge(None)])
def test_plain_needs_nothing_after_its_token(answer: pb.AuthenticateResponse) -> None:
    steps = authenticate(Plain(WHO))
    next(steps)
    with pytest.raises(StopIteration):
        steps.send(answer)


def test_plain_refuses_a_real_challenge() -> None:
    steps = authenticate(Plain(WHO))
    next(steps)
    with pytest.raises(AuthenticationError):
        steps.send(challenge(b"what?"))


def test_a_mechanism_of_many_rounds() -> None:
    steps = authenticate(Chat())
    assert next(steps).token == b""
    assert steps.send(challenge(b"abc")).token == b"cba"
    with pytest.raises(StopIteration):
        steps.send(challenge(b"bye"))


def test_a_server_that_ends_too_early() -> None:
    steps = authenticate(Chat())
    next(steps)
    with pytest.raises(AuthenticationError, match="CHAT"):
        steps.send(challenge(None))


def test_rounds_are_bounded() -> None:
    steps = authenticate(Chat())
    next(steps)
    for _ in range(auth.ROUNDS_MAX - 1):
        steps.send(challenge(b"again"))
    with pytest.raises(AuthenticationError, match="rounds"):
        steps.send(challenge(b"again"))


def test_no_text_form_shows_the_password() -> None:
    mechanism = mechanism_for("plain", WHO)
    step = next(authenticate(mechanism))
    for thing in (WHO, mechanism, step):
        assert "s3cret" not in repr(thing) + str(thing)


@pytest.mark.parametrize(("user", "password"), [("", "x"), ("x", ""), ("a\0b", "x"), ("x", "p\0q")])
def test_credentials_that_plain_cannot_carry(user: str, password: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Plain(Credentials(user, password))
    assert "p\0q" not in str(raised.value)


def test_unknown_mechanisms_name_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="PLAIN"):
        mechanism_for("GSSAPI", WHO)
