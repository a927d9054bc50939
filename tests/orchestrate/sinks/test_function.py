"""The function sink: at least once, and never half."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import FunctionSink, SinkError
from tests.orchestrate.sinks.plans import expected_ids, ids, make_plan, read


def test_gives_one_reader_over_everything() -> None:
    seen: list[pa.Table] = []
    sink = FunctionSink(lambda reader: seen.append(reader.read_all()))
    plan = make_plan((0, 0, 120), (1, 0, 3))
    assert sink.write(plan, read).rows == 123
    assert ids(seen[0]) == expected_ids(plan)
    assert not sink.exactly_once


def test_the_plan_is_passed_on_request() -> None:
    seen: list[str] = []

    def take(reader: pa.RecordBatchReader, plan: ScanPlan) -> None:
        reader.read_all()
        seen.append(plan.plan_id)

    plan = make_plan((0, 0, 3))
    FunctionSink(take, pass_plan=True).write(plan, read)
    assert seen == [plan.plan_id]


def test_rows_left_unread_are_an_error() -> None:
    with pytest.raises(SinkError, match="200 rows"):
        FunctionSink(lambda reader: reader.read_next_batch()).write(make_plan((0, 0, 300)), read)


def test_its_error_comes_through() -> None:
    def fail(reader: pa.RecordBatchReader) -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        FunctionSink(fail).write(make_plan((0, 0, 3)), read)
