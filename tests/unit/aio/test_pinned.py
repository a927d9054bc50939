"""Appends under given numbers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fluss_client.aio.writing.arrow_input import ArrowInput
from fluss_client.aio.writing.pinned import append_pinned
from fluss_client.config import Config
from fluss_client.errors import (
    NetworkError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RequestTimeOutError,
    RowError,
    UnknownWriterIdError,
    WriteError,
)
from fluss_client.model.table import TableBucket
from fluss_client.runtime import runtime
from tests.unit.aio.fake_backend import FakeBackend, Fault, table_of

SCHEMA = pa.schema([("id", pa.int32())])
BUCKET = TableBucket(7, 1)


def log_backend(**options: Any) -> FakeBackend:
    return FakeBackend(table_of(SCHEMA, buckets=4, **options))


def batches(*sizes: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"id": pa.array(range(size), pa.int32())}) for size in sizes]


def append(backend: FakeBackend, data: list[pa.RecordBatch], **options: Any) -> list[int]:
    options = {"writer_id": 77, **options}
    work = append_pinned(backend, backend.table, BUCKET, data, **options)  # type: ignore[arg-type]
    return runtime().call(work)


def test_the_numbers_are_the_given_ones_and_sending_again_changes_nothing() -> None:
    backend = log_backend()
    data = batches(3, 4, 5)
    assert append(backend, data) == [0, 3, 7]
    assert append(backend, data) == [0, 3, 7]
    assert append(backend, batches(1), first_sequence=3) == [12]
    assert len(backend.logs[BUCKET]) == 13
    numbers = {(w.writer_id, w.sequence) for _, writes in backend.sent for w in writes}
    assert numbers == {(77, at) for at in range(4)}
    assert backend.writer_ids == 0


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize(
    "error", [NetworkError("broke"), RequestTimeOutError("slow"), NotLeaderOrFollowerError("moved")]
)
def test_lost_answers_are_asked_for_again(error: Any, taken: bool) -> None:
    backend = log_backend()
    left = [0, 1, 1, 2, 4]

    def script(write: Any) -> Fault | None:
        if write.sequence in left:
            left.remove(write.sequence)
            return Fault(error, taken=taken)
        return None

    backend.script = script
    assert append(backend, batches(1, 1, 1, 1, 1)) == [0, 1, 2, 3, 4]
    assert not left


def test_a_gap_is_an_error_and_no_other_number_is_taken() -> None:
    backend = log_backend()
    with pytest.raises(WriteError) as caught:
        append(backend, batches(1, 1), first_sequence=3)
    assert isinstance(caught.value.__cause__, OutOfOrderSequenceError)
    assert backend.rows() == []
    assert {w.writer_id for _, writes in backend.sent for w in writes} == {77}


@pytest.mark.parametrize("error", [RecordTooLargeError("big"), UnknownWriterIdError("who?")])
def test_an_error_for_good_ends_it(error: Any) -> None:
    backend = log_backend()
    backend.script = lambda write: Fault(error) if write.sequence == 1 else None
    with pytest.raises(WriteError) as caught:
        append(backend, batches(1, 1, 1))
    assert caught.value.__cause__ is error
    assert len(backend.rows()) == 1


def test_retries_are_bounded() -> None:
    backend = log_backend()
    backend.script = lambda write: Fault(NetworkError("down"))
    with pytest.raises(WriteError, match="down"):
        append(backend, batches(1), config=Config({"writer.retries": 2}))
    assert len(backend.sent) == 3


def test_bounds_and_types() -> None:
    backend = log_backend()
    for data in ([], batches(1, 1, 1, 1, 1, 1)):
        with pytest.raises(RowError, match="1 to 5 batches"):
            append(backend, data)
    with pytest.raises(RowError, match="no column 'x'"):
        append(backend, [pa.record_batch({"x": [1]})])
    with pytest.raises(RowError, match="primary key"):
        append(log_backend(primary_keys=["id"]), batches(1))


def test_rows_that_were_conformed_before_are_not_conformed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = log_backend()
    conformed: list[int] = []
    conform = ArrowInput.conform

    def counting(self: ArrowInput, batch: pa.RecordBatch) -> pa.RecordBatch:
        conformed.append(batch.num_rows)
        return conform(self, batch)

    monkeypatch.setattr(ArrowInput, "conform", counting)
    other = pa.record_batch({"id": pa.array([1, 2], pa.int64())})
    assert append(backend, [*batches(3), other]) == [0, 3]
    assert conformed == [2]
