"""The calls, versions, error codes and message fields of the official client jars, against ours.

Calls between servers (PRIVATE in the jar) are not a client's, except those that tiering uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fluss_client.error_codes import ErrorCode
from fluss_client.errors import FlussError, error_for
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from tests.interop.jars import output_of
from tests.interop.test_message_bytes import MESSAGES

NEWEST = "1.0.0"
OTHER_VERSIONS = {"GET_KV_SNAPSHOT_METADATA": (0, 1)}
"""Calls whose highest version here is not the jar's: (ours, the jar's)."""
RETRIED_HERE = {
    "RetriableAuthenticationError": "by its name; the connection is opened again",
    "NotCoordinatorLeaderError": "the client looks for the coordinator that leads",
    "TooManyScannersError": "the client waits for another scan to end",
    "InvalidBucketRoutingError": "the client places rows and keys anew",
}
"""The errors that the official client does not repeat a call after, and why this one does."""
_FIXED = {FieldDescriptor.TYPE_FLOAT: 5, FieldDescriptor.TYPE_DOUBLE: 1}
_OF_LENGTH = (
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.TYPE_MESSAGE,
)


@pytest.fixture(scope="module", params=[NEWEST, "0.9.1-incubating"])
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def surface(version: str) -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = {"call": [], "error": [], "field": []}
    for line in output_of("Surface.java", version):
        kind, *words = line.split()
        found[kind].append(words)
    return found


def wire_type(field: FieldDescriptor) -> int:
    """The wire type of one value; of numbers in a list, that of a value that is not packed."""
    return 2 if field.type in _OF_LENGTH else _FIXED.get(field.type, 0)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def test_every_public_call_has_the_same_key_and_versions(
    surface: dict[str, list[list[str]]], version: str
) -> None:
    named = {(int(key), name): int(most) for key, name, _, most, _ in surface["call"]}
    public = {(int(key), name) for key, name, _, _, seen in surface["call"] if seen == "PUBLIC"}
    ours = {(api.key, api.name): api.version_max for api in apis.APIS.values()}
    assert public <= ours.keys()
    if version != NEWEST:
        return
    assert ours.keys() <= named.keys()
    differing = {k[1]: (ours[k], named[k]) for k in ours if ours[k] != named[k]}
    assert differing == OTHER_VERSIONS


def test_every_error_code_has_a_class_of_its_own(surface: dict[str, list[list[str]]]) -> None:
    codes = [int(code) for code, *_ in surface["error"] if int(code) not in (-1, 0)]
    known = {value for value in vars(ErrorCode).values() if isinstance(value, int)}
    assert set(codes) <= known
    classes = [type(error_for(code, "said")) for code in codes]
    assert len(set(classes)) == len(codes)
    assert all(kind.__doc__ and issubclass(kind, FlussError) for kind in classes)


def test_errors_are_retried_as_by_the_official_client(
    surface: dict[str, list[list[str]]],
) -> None:
    errors = {error_for(int(code), "said"): flags for code, *flags in surface["error"]}
    for error, (retriable, stale) in errors.items():
        name, theirs = type(error).__name__, (retriable == "true", stale == "true")
        if name in RETRIED_HERE:
            assert (error.retriable, *theirs) == (True, False, False), name
        else:
            assert (error.retriable, error.stale_metadata) == theirs, name


def test_every_field_of_our_messages_is_theirs(
    surface: dict[str, list[list[str]]], version: str
) -> None:
    theirs: dict[str, dict[str, tuple[int, int]]] = {}
    for message, name, number, kind in surface["field"]:
        theirs.setdefault(message, {})[name] = (int(number), int(kind))
    ours = {
        message.name: {snake(f.name): (f.number, wire_type(f)) for f in message.fields}
        for message in pb.DESCRIPTOR.message_types_by_name.values()
    }
    for name, fields in ours.items():
        if version == NEWEST:
            # Messages without fields are not listed by the jar.
            assert fields == theirs.get(name, {}), name
        else:
            assert theirs.get(name, {}).items() <= fields.items(), name
    needed = {
        cls.DESCRIPTOR.name for api in apis.APIS.values() for cls in (api.request, api.response)
    }
    assert needed <= ours.keys()


def set_fields(message: Message) -> Iterator[tuple[str, str]]:
    """The fields that a message has, and those of the messages in it."""
    for field, value in message.ListFields():
        yield message.DESCRIPTOR.name, snake(field.name)
        if field.message_type is not None:
            for one in value if field.is_repeated else [value]:
                yield from set_fields(one)


def test_the_bytes_of_every_new_field_are_compared() -> None:
    fields: dict[str, set[tuple[str, str]]] = {}
    for version in (NEWEST, "0.9.1-incubating"):
        lines = [line.split() for line in output_of("Surface.java", version)]
        fields[version] = {(line[1], line[2]) for line in lines if line[0] == "field"}
    ours = set(pb.DESCRIPTOR.message_types_by_name)
    new = {(m, f) for m, f in fields[NEWEST] - fields["0.9.1-incubating"] if m in ours}
    compared = {found for message, _ in MESSAGES for found in set_fields(message)}
    assert len(new) > 60
    assert new <= compared
