"""Frames: what is encoded is decoded again, and no bytes do harm."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fluss_client.errors import (
    CorruptDataError,
    RecordTooLargeError,
    TableNotExistError,
    UnknownServerError,
    error_for,
)
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire import rpc
from fluss_client.wire.messages import parse
from fluss_client.wire.rpc import (
    Failure,
    Success,
    decode_length,
    decode_response,
    encode_request,
)

INT16 = st.integers(-(2**15), 2**15 - 1)
REQUEST_IDS = st.integers(0, 2**31 - 1)


@given(INT16, INT16, REQUEST_IDS, st.lists(st.binary(max_size=40), max_size=4))
def test_a_request_is_its_header_and_the_very_same_parts(
    key: int, version: int, request_id: int, parts: list[bytes]
) -> None:
    frame = encode_request(key, version, request_id, parts)
    assert all(sent is given_part for sent, given_part in zip(frame[1:], parts, strict=True))
    body = b"".join(parts)
    header = struct.unpack(">ihhi", frame[0])
    assert header == (8 + len(body), key, version, request_id)
    assert b"".join(frame)[12:] == body


def test_a_request_counts_bytes_not_items() -> None:
    wide = memoryview(bytearray(32)).cast("q")
    assert struct.unpack_from(">i", encode_request(1, 0, 0, [wide])[0]) == (8 + 32,)


def test_a_request_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "REQUEST_BYTES_MAX", 112)
    assert encode_request(1, 0, 0, [bytes(100)])
    with pytest.raises(RecordTooLargeError, match="113 bytes exceeds the 112"):
        encode_request(1, 0, 0, [bytes(101)])


@pytest.mark.parametrize(
    ("prefix", "length"), [("00000001", 1), ("7fffffff", 2**31 - 1), ("00000100", 256)]
)
def test_lengths(prefix: str, length: int) -> None:
    assert decode_length(bytes.fromhex(prefix)) == length


@pytest.mark.parametrize("prefix", ["00000000", "ffffffff", "80000000", "0000", "0000000000"])
def test_impossible_lengths(prefix: str) -> None:
    with pytest.raises(CorruptDataError):
        decode_length(bytes.fromhex(prefix))


def test_a_stray_length_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(CorruptDataError, match="Fluss server"):
        decode_length(b"HTTP", rpc.HANDSHAKE_BYTES_MAX)


@given(REQUEST_IDS, st.binary(max_size=60))
def test_a_success_is_a_view_into_the_frame(request_id: int, body: bytes) -> None:
    frame = bytearray(struct.pack(">bi", 0, request_id) + body)
    response = decode_response(memoryview(frame))
    assert isinstance(response, Success)
    assert response.request_id == request_id
    assert response.body == body
    assert response.body.obj is frame


@given(REQUEST_IDS, st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=20))
@example(0, 1, "\n")
def test_failures_carry_the_typed_error(request_id: int, code: int, text: str | None) -> None:
    body = pb.ErrorResponse(error_code=code, error_message=text).SerializeToString()
    one = decode_response(struct.pack(">bi", 1, request_id) + body)
    whole = decode_response(b"\x02" + body)
    assert isinstance(one, Failure)
    assert isinstance(whole, Failure)
    assert (one.request_id, whole.request_id) == (request_id, None)
    for failure in (one, whole):
        assert failure.error.error_code == (code or -1)
        assert failure.error.message == error_for(code or -1, text).message


def test_known_and_unknown_codes() -> None:
    def error(code: int) -> object:
        body = pb.ErrorResponse(error_code=code).SerializeToString()
        response = decode_response(b"\x01\x00\x00\x00\x07" + body)
        assert isinstance(response, Failure)
        return response.error

    assert type(error(7)) is TableNotExistError
    assert type(error(9999)) is UnknownServerError
    assert type(error(0)) is UnknownServerError


@pytest.mark.parametrize("body", [b"", b"\x12\x01x", b"\xff", b"\x08\x01\x12\x02\xff\xfe"])
def test_an_unreadable_failure_still_names_its_request(body: bytes) -> None:
    response = decode_response(b"\x01\x00\x00\x00\x07" + body)
    assert isinstance(response, Failure)
    assert response.request_id == 7
    assert isinstance(response.error, CorruptDataError)


@pytest.mark.parametrize("frame", [b"", b"\x00", b"\x00\x00\x00\x00", b"\x01ab", b"\x03abcdef"])
def test_frames_that_make_no_sense(frame: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_response(frame)


@given(st.binary(max_size=80))
def test_any_bytes_give_a_value_or_a_typed_error(frame: bytes) -> None:
    try:
        response = decode_response(frame)
    except CorruptDataError:
        return
    assert isinstance(response, Success | Failure)


def test_parse_refuses_incomplete_messages() -> None:
    with pytest.raises(CorruptDataError, match="required"):
        parse(pb.InitWriterResponse, b"")


@pytest.mark.parametrize(
    ("cls", "body"),
    [
        (pb.ErrorResponse, b"\x08\x01\x12\x02\xff\xfe"),
        (pb.ListTablesResponse, b"\x0a\x01a\x0a\x01\xff"),
        (pb.ListRebalanceProgressResponse, b"\x0a\x01\xff"),
        (pb.ListPartitionInfosResponse, bytes.fromhex("0a0c 0801 12080a06 0a0161 1201ff")),
    ],
)
def test_parse_refuses_broken_text(cls: type[pb.ErrorResponse], body: bytes) -> None:
    with pytest.raises(CorruptDataError, match="UTF-8"):
        parse(cls, body)


@given(st.sampled_from([pb.MetadataResponse, pb.GetTableInfoResponse, pb.ListAclsResponse]),
       st.binary(max_size=60))  # fmt: skip
def test_parse_gives_a_message_or_a_typed_error(
    cls: type[pb.MetadataResponse], body: bytes
) -> None:
    try:
        message = parse(cls, body)
    except CorruptDataError:
        return
    assert message.IsInitialized()
