"""The table of calls and the choice of their versions."""

from __future__ import annotations

import pytest

from fluss_client.errors import UnsupportedByServerError
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb


def offer(api: apis.Api, minimum: int, maximum: int) -> pb.PbApiVersion:  # type: ignore[type-arg]
    return pb.PbApiVersion(api_key=api.key, min_version=minimum, max_version=maximum)


def test_keys_and_names_are_unique_and_complete() -> None:
    declared = [value for value in vars(apis).values() if isinstance(value, apis.Api)]
    assert len(declared) == len(apis.APIS) == len({api.name for api in declared})
    assert all(getattr(apis, api.name) is api for api in declared)
    used = {cls.DESCRIPTOR.name for api in declared for cls in (api.request, api.response)}
    messages = {name for name in pb.DESCRIPTOR.message_types_by_name if not name.startswith("Pb")}
    assert used == messages - {"ErrorResponse"}


def test_request_and_response_belong_together() -> None:
    for api in apis.APIS.values():
        request = api.request.DESCRIPTOR.name.removesuffix("Request")
        assert request == api.response.DESCRIPTOR.name.removesuffix("Response")


@pytest.mark.parametrize(
    ("minimum", "maximum", "chosen"),
    [(0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 9, 3), (2, 2, 2), (4, 9, None), (5, 1, None)],
)
def test_the_highest_common_version_is_chosen(
    minimum: int, maximum: int, chosen: int | None
) -> None:
    table = apis.negotiate([offer(apis.PUT_KV, minimum, maximum)], "here")
    assert table.supports(apis.PUT_KV) is (chosen is not None)
    if chosen is None:
        with pytest.raises(UnsupportedByServerError):
            table.version(apis.PUT_KV)
    else:
        assert table.version(apis.PUT_KV) == chosen


def test_unknown_calls_of_the_server_are_ignored() -> None:
    stranger = pb.PbApiVersion(api_key=9999, min_version=0, max_version=3)
    assert dict(apis.negotiate([stranger], "here").versions) == {}


def test_an_absent_call_names_itself_and_the_server() -> None:
    table = apis.negotiate([], "10.0.0.1:9123")
    with pytest.raises(UnsupportedByServerError, match=r"SCAN_KV \(1061\).*10\.0\.0\.1:9123"):
        table.version(apis.SCAN_KV)
