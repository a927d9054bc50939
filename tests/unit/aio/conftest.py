"""Nothing that a test of a writer starts may outlive the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fluss_client.aio.writing.writer import AppendWriter, UpsertWriter
from fluss_client.config import Config
from tests.unit.aio.fake_backend import FakeBackend


@pytest.fixture
def appender() -> Iterator[Callable[..., AppendWriter]]:
    """Makes append writers; keys are written with `_` for `.` and `-`."""
    made: list[AppendWriter] = []

    def make(backend: FakeBackend, **settings: Any) -> AppendWriter:
        config = Config({key.replace("_", "-"): value for key, value in settings.items()})
        made.append(AppendWriter(backend, backend.table, config))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for writer in made:
        assert writer.close_future().exception() is None, "a test left an error behind"


@pytest.fixture
def upserter() -> Iterator[Callable[..., UpsertWriter]]:
    """Makes upsert writers."""
    made: list[UpsertWriter] = []

    def make(
        backend: FakeBackend, target_columns: list[int] | None = None, **settings: Any
    ) -> UpsertWriter:
        config = Config({key.replace("_", "-"): value for key, value in settings.items()})
        writer = UpsertWriter(backend, backend.table, config, target_columns)  # type: ignore[arg-type]
        made.append(writer)
        return writer

    yield make
    for writer in made:
        assert writer.close_future().exception() is None, "a test left an error behind"
