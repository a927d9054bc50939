"""What a killed program has written down is read by its next life, and by the judge."""

from __future__ import annotations

from pathlib import Path

from tests.faults.soak.history import APART, judge_keys
from tests.faults.soak.journal import Journal, keys_written, next_number, written


def test_a_writer_goes_on_after_what_it_sent_and_not_after_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path, "append-1")
    assert next_number(journal, 1) == APART
    journal.step(sent=[APART, APART + 50])
    journal.step(acknowledged=[APART, APART + 50])
    journal.step(sent=[APART + 50, APART + 100])  # killed before the answer
    again = Journal(tmp_path, "append-1")
    assert next_number(again, 1) == APART + 100
    assert written([again]).sent == [(APART, APART + 50), (APART + 50, APART + 100)]
    assert written([again]).acknowledged == [(APART, APART + 50)]


def test_the_changes_of_keys_come_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "upsert")
    journal.step(sent=[0, 2], keys=[7, 8], deleted=[])
    journal.step(acknowledged=[0, 2])
    journal.step(sent=[2, 3], keys=[7], deleted=[8])
    history = keys_written(journal)
    assert history.changes == [(0, {7: 0, 8: 1}), (2, {7: 2, 8: None})]
    assert judge_keys("table", history, [(7, 0), (8, 1)]).is_well
    assert judge_keys("table", history, [(7, 2)]).is_well
    assert not judge_keys("table", history, [(7, 9), (8, 1)]).is_well


def test_errors_are_counted_and_what_must_never_be_is_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "sensor")
    assert journal.progress() == 0
    journal.refused(TimeoutError("late"))
    journal.refused(TimeoutError("late"))
    assert journal.progress() == 0, "an error is no progress"
    journal.step(reached=[1])
    assert journal.progress() > 0
    assert journal.refusals() == {"TimeoutError": 2}
    assert journal.wrongs() == []
    journal.wrong("fired early")
    assert journal.wrongs() == ["fired early"]
