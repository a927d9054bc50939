"""The rules of one bucket, answer by answer."""

from __future__ import annotations

import pytest

from fluss_client.aio.writing.accumulator import NO_SEQUENCE, Batch
from fluss_client.aio.writing.bucket_line import SEQUENCE_MAX, BucketLine, LineRules, State
from fluss_client.errors import (
    NetworkError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RequestTimeOutError,
    StorageBackpressureError,
    UnknownWriterIdError,
)
from fluss_client.model.table import TableBucket
from tests.unit.aio.fake_backend import FakePayload

BUCKET = TableBucket(7, 0)
RULES = LineRules(inflight_max=5, retries_max=10, retry_timeout_s=100.0)
LOST = NetworkError("lost")
GAP = OutOfOrderSequenceError("gap")


def line_with(count: int, rules: LineRules = RULES) -> tuple[BucketLine, list[Batch]]:
    """A line that is ready, with encoded batches in its queue."""
    line = BucketLine(BUCKET, rules)
    batches = [Batch(BUCKET, 0.0, payload=FakePayload([at], 1)) for at in range(count)]
    for batch in batches:
        line.push(batch, 0.0)
    line.adopt_writer(1)
    line.state = State.READY
    return line, batches


def send_all(line: BucketLine) -> list[Batch]:
    sent = []
    while line.sendable() is not None:
        sent.append(line.take())
    return sent


def send_again(line: BucketLine, writer_id: int = 9) -> list[Batch]:
    """What the sender does after the line has drained: resend, then what is new."""
    assert line.state is State.DRAINING
    assert not line.awaiting
    line.drained()
    if line.needs_writer:
        line.adopt_writer(writer_id)
    line.ready()
    return send_all(line)


def numbers(batches: list[Batch]) -> list[tuple[int, int]]:
    return [(batch.writer_id, batch.sequence) for batch in batches]


def test_batches_go_out_numbered_in_order_up_to_the_bound() -> None:
    line, batches = line_with(7)
    sent = send_all(line)
    assert sent == batches[:5]
    assert numbers(sent) == [(1, at) for at in range(5)]
    assert [batch.behind for batch in sent] == [False, True, True, True, True]
    line.acknowledged(sent[0], 1.0)
    assert send_all(line) == [batches[5]]


def test_an_unencoded_head_holds_the_queue_back() -> None:
    line, batches = line_with(2)
    batches[0].payload = None
    assert line.sendable() is None
    batches[0].payload = FakePayload([0], 1)
    assert line.sendable() is batches[0]


def test_sequences_begin_again_after_the_last() -> None:
    line, _ = line_with(2)
    line.adopt_writer(1, SEQUENCE_MAX)
    assert numbers(send_all(line)) == [(1, SEQUENCE_MAX), (1, 0)]


def test_after_a_lost_answer_all_go_again_with_the_same_numbers_before_anything_new() -> None:
    line, batches = line_with(4)
    batches[3].payload = None
    sent = send_all(line)
    assert not line.refused(sent[1], LOST, 1.0)
    batches[3].payload = FakePayload([3], 1)
    assert line.sendable() is None, "nothing new while the line drains"
    assert not line.refused(sent[2], GAP, 1.0)
    line.acknowledged(sent[0], 1.0)
    assert send_again(line) == batches[1:]
    assert numbers(batches) == [(1, at) for at in range(4)]


def test_an_error_before_all_have_gone_again_begins_anew() -> None:
    line, batches = line_with(4)
    sent = send_all(line)
    for batch in sent:
        assert not line.refused(batch, LOST, 1.0)
    line.drained()
    line.ready()
    assert [line.take(), line.take()] == batches[:2]
    line.acknowledged(batches[0], 2.0)
    assert not line.refused(batches[1], LOST, 2.0)
    assert line.sendable() is None, "the rest waits for its turn after the next pause"
    assert send_again(line) == batches[1:]
    assert numbers(batches) == [(1, at) for at in range(4)]


def test_out_of_order_behind_an_acknowledged_batch_goes_again_once() -> None:
    line, _ = line_with(2)
    sent = send_all(line)
    line.acknowledged(sent[0], 1.0)
    assert not line.refused(sent[1], GAP, 1.0), "it was sent while the first was unacknowledged"
    assert send_again(line) == [sent[1]]
    assert line.refused(sent[1], GAP, 2.0), "now it was the first, and is refused for good"


def test_later_batches_get_new_numbers_when_one_has_failed_for_good() -> None:
    line, batches = line_with(5)
    sent = send_all(line)
    assert line.refused(sent[0], RecordTooLargeError("big"), 1.0)
    for batch in sent[1:]:
        assert not line.refused(batch, GAP, 1.0)
    assert send_again(line) == batches[1:]
    assert numbers(batches[1:]) == [(9, at) for at in range(4)]


def test_a_batch_without_a_clear_answer_keeps_its_numbers_until_there_is_one() -> None:
    line, batches = line_with(3)
    sent = send_all(line)
    assert line.refused(sent[0], RecordTooLargeError("big"), 1.0)
    assert not line.refused(sent[1], LOST, 1.0)
    assert not line.refused(sent[2], GAP, 1.0)
    assert send_again(line) == [batches[1]]
    assert numbers([batches[1]]) == [(1, 1)]
    assert not line.refused(batches[1], GAP, 2.0)
    assert send_again(line) == batches[1:]
    assert numbers(batches[1:]) == [(9, 0), (9, 1)]


def test_new_numbers_wait_for_the_last_clear_answer() -> None:
    line, batches = line_with(4)
    batches[3].payload = None
    sent = send_all(line)
    assert line.refused(sent[0], RequestTimeOutError("slow"), 100.0), "its time is over"
    assert not line.refused(sent[1], LOST, 1.0)
    assert not line.refused(sent[2], GAP, 1.0)
    batches[3].payload = FakePayload([3], 1)
    assert send_again(line) == [batches[1]], "nothing new under numbers with a gap"
    line.acknowledged(batches[1], 2.0)
    assert send_again(line) == batches[2:]
    assert numbers(batches[2:]) == [(9, 0), (9, 1)]


def test_a_batch_stays_among_those_that_the_server_remembers() -> None:
    line, batches = line_with(9)
    sent = send_all(line)
    for batch in sent[1:]:
        line.acknowledged(batch, 1.0)
    assert line.sendable() is None, "a sixth batch would push the first one out"
    line.acknowledged(sent[0], 1.0)
    assert send_all(line) == batches[5:]


def test_a_forgotten_writer_costs_only_what_may_be_written() -> None:
    line, batches = line_with(2)
    sent = send_all(line)
    assert not line.refused(sent[0], RequestTimeOutError("slow"), 1.0)
    assert not line.refused(sent[1], GAP, 1.0)
    assert send_again(line) == batches
    assert line.refused(sent[0], UnknownWriterIdError("gone"), 2.0), "it may be in the log"
    assert not line.refused(sent[1], UnknownWriterIdError("gone"), 2.0), "it never was"
    assert send_again(line) == [batches[1]]
    assert numbers([batches[1]]) == [(9, 0)]


def test_retries_and_time_are_bounded() -> None:
    line, _ = line_with(1, LineRules(inflight_max=5, retries_max=1, retry_timeout_s=100.0))
    (batch,) = send_all(line)
    assert not line.refused(batch, LOST, 1.0)
    send_again(line)
    assert line.refused(batch, LOST, 2.0)

    line, _ = line_with(1)
    (batch,) = send_all(line)
    assert not line.refused(batch, LOST, 99.0)
    send_again(line)
    assert line.refused(batch, LOST, 100.0)


def test_progress_of_the_bucket_gives_its_batches_more_time() -> None:
    line, _ = line_with(2)
    sent = send_all(line)
    line.acknowledged(sent[0], 90.0)
    assert not line.refused(sent[1], LOST, 150.0)


def test_a_server_that_asks_for_patience_costs_no_retry() -> None:
    line, _ = line_with(1, LineRules(inflight_max=5, retries_max=1, retry_timeout_s=100.0))
    (batch,) = send_all(line)
    for _ in range(20):
        assert not line.refused(batch, StorageBackpressureError("slower"), 1.0)
        send_again(line)


def test_a_pinned_writer_keeps_its_id_and_breaks() -> None:
    rules = LineRules(inflight_max=5, retries_max=9, retry_timeout_s=9.0, pinned=True)
    line, batches = line_with(2, rules)
    send_all(line)
    assert line.refused(batches[0], UnknownWriterIdError("gone"), 1.0)
    assert not line.refused(batches[1], GAP, 1.0)
    line.drained()
    assert line.broken
    assert not line.needs_writer
    assert line.drop() == [batches[1]]


def test_without_idempotence_there_are_no_numbers() -> None:
    rules = LineRules(inflight_max=1, retries_max=9, retry_timeout_s=9.0, idempotent=False)
    line = BucketLine(BUCKET, rules)
    assert not line.needs_writer
    batch = Batch(BUCKET, 0.0, payload=FakePayload([0], 1))
    line.push(batch, 0.0)
    line.state = State.READY
    assert send_all(line) == [batch]
    assert numbers([batch]) == [(-1, NO_SEQUENCE)]
    assert not line.refused(batch, LOST, 1.0)
    assert send_again(line) == [batch]


@pytest.mark.parametrize("everything", [True, False])
def test_dropping_takes_out_what_has_waited_too_long(everything: bool) -> None:
    line, batches = line_with(3)
    batches[2].sealed_at = 60.0
    line.take()
    assert not line.refused(batches[0], LOST, 1.0)
    dropped = line.drop(None if everything else 110.0)
    assert dropped == (batches if everything else batches[:2])
    assert line.backlog == 3 - len(dropped)
    assert line.needs_writer, "the numbers of what was sent are gone for good"
