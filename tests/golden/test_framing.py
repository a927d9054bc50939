"""Frames as the official client and a 0.9.1 server exchanged them, byte by byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf.message import Message

from fluss_client.errors import AuthenticationError
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.auth import Credentials, Plain, authenticate
from fluss_client.wire.messages import parse
from fluss_client.wire.rpc import (
    LENGTH_BYTES,
    Failure,
    Success,
    decode_length,
    decode_response,
    encode_request,
)

VECTORS: dict[str, str] = json.loads(
    Path(__file__).with_name("wire-vectors.json").read_text(encoding="utf-8")
)["framing"]


def vector(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name])


def plain_step() -> Message:
    return next(authenticate(Plain(Credentials("admin", "admin-secret")))).message()


REQUESTS = {
    "api_versions_request": (
        apis.API_VERSIONS,
        0,
        pb.ApiVersionsRequest(client_software_name="fluss", client_software_version="0.1.0"),
    ),
    "sasl_plain_request_admin_id4": (apis.AUTHENTICATE, 4, plain_step()),
    "list_databases_request_id5": (apis.LIST_DATABASES, 5, pb.ListDatabasesRequest()),
}
RESPONSES = {
    "api_versions_response_tablet_0.9.1",
    "sasl_plain_response_ok_id4",
    "sasl_plain_response_bad_password_id2",
    "list_databases_response_id5",
}


def success(name: str) -> Success:
    raw = vector(name)
    assert decode_length(raw[:LENGTH_BYTES]) == len(raw) - LENGTH_BYTES
    response = decode_response(memoryview(raw)[LENGTH_BYTES:])
    assert isinstance(response, Success)
    return response


def test_every_vector_is_walked() -> None:
    assert set(VECTORS) == set(REQUESTS) | RESPONSES


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_those_of_the_official_client(name: str) -> None:
    api, request_id, message = REQUESTS[name]
    frame = encode_request(api.key, 0, request_id, [message.SerializeToString()])
    assert b"".join(frame) == vector(name)


def test_api_versions_of_a_tablet_server() -> None:
    response = success("api_versions_response_tablet_0.9.1")
    answer = parse(pb.ApiVersionsResponse, response.body)
    assert response.request_id == 0
    assert answer.server_type == apis.Served.TABLET.value
    table = apis.negotiate(answer.api_versions, "tablet")
    served = {api.name for api in apis.APIS.values() if apis.Served.TABLET in api.served}
    assert {apis.APIS[key].name for key in table.versions} == served - {
        "SCAN_KV",
        "GET_CLUSTER_HEALTH",
    }
    assert (table.version(apis.PUT_KV), table.version(apis.LOOKUP)) == (1, 1)
    assert table.version(apis.PRODUCE_LOG) == 0


def test_databases_are_listed() -> None:
    response = success("list_databases_response_id5")
    answer = parse(pb.ListDatabasesResponse, response.body)
    assert response.request_id == 5
    assert list(answer.database_name) == ["bench", "fluss"]


def test_plain_is_complete_with_an_empty_challenge() -> None:
    answer = parse(pb.AuthenticateResponse, success("sasl_plain_response_ok_id4").body)
    assert answer.HasField("challenge")
    assert answer.challenge == b""
    steps = authenticate(Plain(Credentials("admin", "admin-secret")))
    next(steps)
    with pytest.raises(StopIteration):
        steps.send(answer)


def test_a_bad_password_is_an_authentication_error() -> None:
    raw = vector("sasl_plain_response_bad_password_id2")
    response = decode_response(raw[LENGTH_BYTES:])
    assert isinstance(response, Failure)
    assert response.request_id == 2
    assert isinstance(response.error, AuthenticationError)
    assert response.error.error_code == 46
    assert "Invalid username or password" in response.error.message
