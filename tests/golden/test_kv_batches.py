"""KV batches, values and value batches as the Java classes of the server write them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.kv_batch import (
    HEADER_SIZE,
    decode_kv_batch,
    decode_value,
    decode_value_batch,
    decode_values,
    encode_kv_batch,
    kv_record_sizes,
    seal_kv_records,
)

VECTORS = json.loads((Path(__file__).parent / "wire-vectors.json").read_text())
KV = {entry["name"]: bytes.fromhex(entry["hex"]) for entry in VECTORS["kv"]}

ROW_1A = bytes.fromhex("00010161")
ROW_300 = bytes.fromhex("02ac02")
ROWS = Blobs.from_list([ROW_1A, ROW_300, b""])
COMPACTED = Blobs.from_list([b"\x01", b"\xac\x02", b"\x02"])
ICEBERG = Blobs.from_list([n.to_bytes(8, "little") for n in (1, 300, 2)])
DELETES = np.array([False, False, True])
CASES = [
    ("kv_batch_compacted_keys", COMPACTED, 100, 0),
    ("kv_batch_iceberg_keys_no_writer", ICEBERG, -1, -1),
]


@pytest.mark.parametrize(("name", "keys", "writer_id", "sequence"), CASES)
def test_kv_batch_bytes(name: str, keys: Blobs, writer_id: int, sequence: int) -> None:
    pieces = encode_kv_batch(
        keys, ROWS, DELETES, schema_id=1, writer_id=writer_id, batch_sequence=sequence
    )
    assert b"".join(pieces) == KV[name]
    assert HEADER_SIZE + kv_record_sizes(keys, ROWS).sum() == len(KV[name])


@pytest.mark.parametrize(("name", "keys", "writer_id", "sequence"), CASES)
def test_kv_batch_restamped(name: str, keys: Blobs, writer_id: int, sequence: int) -> None:
    sealed = seal_kv_records(keys, ROWS, DELETES)
    for stamp in ((7, 8), (writer_id, sequence)):
        pieces = encode_kv_batch(
            sealed, record_count=3, schema_id=1, writer_id=stamp[0], batch_sequence=stamp[1]
        )
    assert b"".join(pieces) == KV[name]


@pytest.mark.parametrize(("name", "keys", "writer_id", "sequence"), CASES)
def test_kv_batch_decoded(name: str, keys: Blobs, writer_id: int, sequence: int) -> None:
    batch = decode_kv_batch(KV[name])
    assert (batch.schema_id, batch.writer_id, batch.batch_sequence) == (1, writer_id, sequence)
    assert batch.keys.to_list() == keys.to_list()
    assert batch.rows.to_list() == ROWS.to_list()
    assert batch.deletes.tolist() == DELETES.tolist()


def test_lookup_value() -> None:
    assert decode_value(KV["lookup_value"]) == (1, ROW_1A)
    ids, rows = decode_values(Blobs.from_list([KV["lookup_value"]] * 20))
    assert ids.tolist() == [1] * 20
    assert rows.to_list() == [ROW_1A] * 20


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("value_record_batch", ["00010161", "02ac02"]),
        ("live_limit_scan_0.9.1", ["00010162", "00050466697665", "02ac02"]),
    ],
)
def test_value_batch(name: str, expected: list[str]) -> None:
    ids, rows = decode_value_batch(KV[name])
    assert ids.tolist() == [1] * len(expected)
    assert [row.hex() for row in rows.to_list()] == expected
    assert len(decode_value_batch(b"")[1]) == 0
