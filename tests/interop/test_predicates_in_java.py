"""Conditions of scans as the official 1.0 client reads them from the bytes that servers get.

The client jar has the code by which a server decodes a condition and tests rows. A server that
leaves out rows must never leave out one that the condition is true for.
"""

from __future__ import annotations

from typing import Any

from fluss_client.backend.cluster.predicates import predicate_pb
from fluss_client.wire import fluss_pb2 as pb
from tests.fluss1.test_filters import CASES, ROWS, SCHEMA
from tests.interop.java_peer import JavaPeer
from tests.interop.peer_values import to_peer

COLUMNS = [[column.name, str(column.type)] for column in SCHEMA.columns]


def rows() -> list[list[Any]]:
    return [
        [to_peer(row[column.name], column.type) for column in SCHEMA.columns]
        for row in ROWS.to_pylist()
    ]


def in_java(
    java_peer: JavaPeer, sent: list[pb.PbPredicate]
) -> list[tuple[pb.PbPredicate, list[bool]]]:
    """What the jar encodes of each condition again, and which of the rows meet it."""
    found = java_peer.call(
        {},
        "predicates",
        "any.table",
        columns=COLUMNS,
        rows=rows(),
        predicates=[one.SerializeToString().hex() for one in sent],
    )
    return [(pb.PbPredicate.FromString(bytes.fromhex(again)), met) for again, met in found]


def flat(message: pb.PbPredicate) -> Any:
    """A condition as plain values; the jar nests joined conditions where we list them."""
    if message.type == 0:
        leaf = message.leaf
        return leaf.function, leaf.field_id, [str(literal) for literal in leaf.literals]
    function = message.compound.function
    parts: list[Any] = []
    for child in message.compound.children:
        same = child.type == 1 and child.compound.function == function
        parts += flat(child)[1] if same else [flat(child)]
    return function, parts


def test_every_condition_means_the_same(java_peer: JavaPeer) -> None:
    cases = [(predicate, predicate_pb(predicate, SCHEMA), kept) for predicate, kept in CASES]
    sent = [(p, message, kept) for p, message, kept in cases if message is not None]
    assert len(sent) >= len(CASES) - 2
    answers = in_java(java_peer, [message for _, message, _ in sent])
    for (predicate, message, kept), (again, met) in zip(sent, answers, strict=True):
        assert [n for n, yes in enumerate(met) if yes] == kept, predicate
        assert flat(again) == flat(message), predicate
