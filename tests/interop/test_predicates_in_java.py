"""Conditions of scans as the official 1.0 client reads them from the bytes that servers get.

The client jar has the code by which a server decodes a condition and tests rows. A server that
leaves out rows must never leave out one that the condition is true for.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

import fluss_client as fluss
from fluss_client.backend.cluster.predicates import predicate_pb
from fluss_client.wire import fluss_pb2 as pb
from fluss_orchestrate.core.row_filter import RowFilter
from tests.fluss1.test_filters import CASES, ROWS, SCHEMA
from tests.interop.java_peer import JavaPeer
from tests.interop.peer_values import to_peer
from tests.orchestrate.test_row_filter import ROWS as FILTERED_ROWS
from tests.orchestrate.test_row_filter import SCHEMA as FILTERED
from tests.orchestrate.test_row_filter import random_text


def in_java(
    java_peer: JavaPeer, sent: list[pb.PbPredicate], schema: fluss.Schema, rows: list[Any]
) -> list[tuple[pb.PbPredicate, list[bool]]]:
    """What the jar encodes of each condition again, and which of the rows meet it."""
    found = java_peer.call(
        {},
        "predicates",
        "any.table",
        columns=[[column.name, str(column.type)] for column in schema.columns],
        rows=[[to_peer(row[c.name], c.type) for c in schema.columns] for row in rows],
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
    messages = [message for _, message, _ in sent]
    answers = in_java(java_peer, messages, SCHEMA, ROWS.to_pylist())
    for (predicate, message, kept), (again, met) in zip(sent, answers, strict=True):
        assert [n for n, yes in enumerate(met) if yes] == kept, predicate
        assert flat(again) == flat(message), predicate


def test_no_row_that_a_row_filter_keeps_is_left_out(java_peer: JavaPeer) -> None:
    chance = random.Random(11)
    schema = fluss.Schema(FILTERED)
    batch = pa.RecordBatch.from_pylist(FILTERED_ROWS, FILTERED)
    texts, sent = [], []
    while len(sent) < 200:
        text = random_text(chance)
        predicate = RowFilter.parse(text).predicate(schema)
        message = None if predicate is None else predicate_pb(predicate, schema)
        if message is not None:
            texts.append(text)
            sent.append(message)
    for text, (_, met) in zip(texts, in_java(java_peer, sent, schema, FILTERED_ROWS), strict=True):
        kept = RowFilter.parse(text).condition.of(batch).fill_null(False).to_pylist()
        assert all(there or not wanted for there, wanted in zip(met, kept, strict=True)), text
