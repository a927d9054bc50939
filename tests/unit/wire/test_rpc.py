"""Correlation of answers and requests."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.errors import ClientError, FlussError, NetworkError
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire import rpc
from fluss_client.wire.rpc import Answer, Correlator


def success(request_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">bi", 0, request_id) + body


def failure(request_id: int, code: int) -> bytes:
    return struct.pack(">bi", 1, request_id) + pb.ErrorResponse(error_code=code).SerializeToString()


@given(st.permutations(range(8)))
def test_answers_in_any_order_find_their_token(order: list[int]) -> None:
    line: Correlator[str] = Correlator()
    assert [line.register(f"t{number}") for number in range(8)] == list(range(8))
    for number in order:
        answer = line.resolve(success(number, bytes([number])))
        assert answer == Answer(f"t{number}", memoryview(bytes([number])))
    assert len(line) == line.late_count == 0


def test_an_error_answers_one_request_only() -> None:
    line: Correlator[str] = Correlator()
    line.register("a")
    line.register("b")
    answer = line.resolve(failure(0, 7))
    assert answer is not None
    assert answer.token == "a"
    assert isinstance(answer.outcome, FlussError)
    assert answer.outcome.error_code == 7
    assert len(line) == 1


def test_late_and_repeated_answers_are_counted_and_ignored() -> None:
    line: Correlator[str] = Correlator()
    request_id = line.register("a")
    assert line.forget(request_id) == "a"
    assert line.forget(request_id) is None
    assert line.resolve(success(request_id)) is None
    assert line.resolve(failure(-3, 7)) is None
    assert line.late_count == 2


def test_ids_wrap_and_skip_those_still_pending() -> None:
    line: Correlator[str] = Correlator(first_request_id=2**31 - 1)
    assert [line.register(token) for token in "abc"] == [2**31 - 1, 0, 1]
    again: Correlator[str] = Correlator()
    again.register("kept")
    again._next_id = 0
    assert again.register("next") == 1


def test_a_server_failure_ends_the_connection() -> None:
    line: Correlator[str] = Correlator()
    line.register("a")
    line.register("b")
    frame = b"\x02" + pb.ErrorResponse(error_code=1, error_message="too big").SerializeToString()
    with pytest.raises(NetworkError, match="too big") as raised:
        line.resolve(frame)
    failed = line.fail_all(raised.value)
    assert [answer.token for answer in failed] == ["a", "b"]
    assert all(answer.outcome is raised.value for answer in failed)
    assert line.failure is raised.value
    assert line.fail_all(ClientError("later")) == []
    with pytest.raises(NetworkError):
        line.register("c")


def test_pending_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "PENDING_MAX", 2)
    line: Correlator[int] = Correlator()
    line.register(0)
    line.register(1)
    with pytest.raises(ClientError, match="2 requests"):
        line.register(2)
    line.resolve(success(0))
    assert line.register(2) == 2


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_any_frames_leave_it_consistent(frames: list[bytes]) -> None:
    line: Correlator[int] = Correlator()
    waiting = {line.register(number) for number in range(4)}
    for frame in frames:
        try:
            answer = line.resolve(frame)
        except FlussError:
            continue
        if answer is not None:
            waiting.remove(answer.token)
    assert len(line) == len(waiting)
