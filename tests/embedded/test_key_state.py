"""Many keys in one statement: found, written and removed exactly, whatever their sizes."""

from __future__ import annotations

import random
import sqlite3

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_client.backend.embedded.keys import state
from fluss_client.backend.embedded.store import layout
from fluss_client.codec.binary.blobs import Blobs

keys = st.binary(min_size=1, max_size=6)


def opened() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    (kv,) = (text for text in layout.statements() if text.startswith("CREATE TABLE kv"))
    connection.execute(kv)
    return connection


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.dictionaries(keys, st.binary(max_size=9), max_size=12), st.sets(keys)),
        max_size=4,
    ),
    rows_max=st.sampled_from([1, 3, 100_000]),
    bytes_max=st.sampled_from([1, 10, 1 << 20]),
)
def test_the_table_acts_like_a_dict(
    steps: list[tuple[dict[bytes, bytes], set[bytes]]], rows_max: int, bytes_max: int
) -> None:
    connection, model = opened(), dict[bytes, bytes]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "STATEMENT_ROWS_MAX", rows_max)
        patch.setattr(state, "STATEMENT_BYTES_MAX", bytes_max)
        for puts, removed in steps:
            state.put_values(
                connection, Blobs.from_list(list(puts)), Blobs.from_list(list(puts.values()))
            )
            state.delete_keys(connection, Blobs.from_list(list(removed)))
            model |= puts
            for key in removed:
                model.pop(key, None)
            asked = sorted(set(puts) | removed | set(model) | {b"never"})
            places, values = state.find_values(connection, Blobs.from_list(asked))
            found = dict(zip((asked[i] for i in places), values, strict=True))
            assert found == {key: model[key] for key in asked if key in model}
            old = state.find_old(connection, Blobs.from_list(asked), with_values=False)
            assert old.found.tolist() == [key in model for key in asked]
    assert dict(connection.execute("SELECT key, value FROM kv")) == model
    connection.close()


def test_long_keys_beside_long_values() -> None:
    chance = random.Random(1)
    sizes = [(1, 1), (20_000, 5), (3, 9_000_000), (70_000, 2_000_000), (5, 0), (900_000, 1)]
    pairs = {chance.randbytes(k): chance.randbytes(v) for k, v in sizes}
    connection = opened()
    state.put_values(
        connection, Blobs.from_list(list(pairs)), Blobs.from_list(list(pairs.values()))
    )
    assert dict(connection.execute("SELECT key, value FROM kv")) == pairs
    places, values = state.find_values(connection, Blobs.from_list(list(pairs)))
    assert places.tolist() == list(range(len(pairs)))
    assert values == list(pairs.values())
    connection.close()


def test_buckets_do_not_mix() -> None:
    connection = opened()
    own = Blobs.from_list([b"", b"\x00", b"\xff\xff"])
    for bucket in (0, 1, 255, 256):
        named = state.bucket_keys(bucket, own)
        state.put_values(connection, named, Blobs.from_list([bytes([bucket % 251])] * 3))
    for bucket in (0, 1, 255, 256):
        rows = connection.execute(
            "SELECT value FROM kv WHERE key >= ? AND key < ?", state.bucket_range(bucket)
        ).fetchall()
        assert rows == [(bytes([bucket % 251]),)] * 3
    assert np.array_equal(state.bucket_keys(7, own).lengths, own.lengths + 4)
    connection.close()
