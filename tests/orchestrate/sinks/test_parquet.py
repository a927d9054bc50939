"""The Parquet sink: a file per range, whole or absent, the same again when written again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client.errors import ConfigError, StorageError
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import ParquetSink
from tests.disk import full_disk
from tests.orchestrate.sinks.plans import expected_ids, ids, make_plan, read


def visible(folder: Path) -> list[str]:
    return sorted(f.name for f in folder.glob("*.parquet"))


def test_one_file_per_range_named_by_it(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    plan = make_plan((0, 5, 255), (2, 0, 10))

    result = sink.write(plan, read)

    assert result.rows == 260
    assert result.bytes == sum(f.stat().st_size for f in (tmp_path / "out").iterdir())
    tail = f"-{plan.plan_id}.parquet"
    assert visible(tmp_path / "out") == [
        f"t17-p-b0-{5:020d}-{255:020d}{tail}",
        f"t17-p-b2-{0:020d}-{10:020d}{tail}",
    ]
    assert ids(pq.read_table(tmp_path / "out")) == expected_ids(plan)


def test_only_columns_whose_values_come_again_have_a_dictionary(tmp_path: Path) -> None:
    ParquetSink(tmp_path).write(make_plan((0, 0, 250)), read)
    (file,) = tmp_path.glob("*.parquet")
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    with_dictionary = {c.path_in_schema for c in columns if c.has_dictionary_page}
    assert with_dictionary == {"region", "small", "_bucket"}


def test_nested_columns_are_written_as_parquet_likes(tmp_path: Path) -> None:
    nested = pa.table({"id": [1, 2], "tags": [["a", "b"], None], "point": [{"x": 1}, {"x": 2}]})
    plan = make_plan((0, 0, 2))
    ParquetSink(tmp_path).write(plan, lambda _: nested.to_reader())
    assert pq.read_table(tmp_path) == nested


def test_a_directory_has_a_name() -> None:
    for empty in ("", "  "):
        with pytest.raises(ConfigError, match="directory"):
            ParquetSink(empty)


def test_again_reads_nothing_and_gives_the_same_result(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    plan = make_plan((0, 0, 50), (1, 0, 7))
    assert sink.already_done(plan) is None
    first = sink.write(plan, read)

    def fail(_: ScanPlan) -> pa.RecordBatchReader:
        raise AssertionError("nothing is left to read")

    assert sink.already_done(plan) == replace(first, moved=0)
    assert sink.write(plan, fail) == replace(first, moved=0)


def test_after_a_crash_only_what_is_missing_is_read(tmp_path: Path) -> None:
    plan = make_plan((0, 0, 50), (1, 0, 250), (2, 0, 30))
    asked: list[int] = []

    def dies(part: ScanPlan) -> pa.RecordBatchReader:
        reader = read(part)
        asked.append(part.ranges[0].bucket)
        if part.ranges[0].bucket != 1:
            return reader

        def some():  # type: ignore[no-untyped-def]
            yield reader.read_next_batch()
            raise OSError("the line broke")

        return pa.RecordBatchReader.from_batches(reader.schema, some())

    sink = ParquetSink(tmp_path)
    with pytest.raises(OSError, match="the line broke"):
        sink.write(plan, dies)
    # Files are written a few at once, so the others may be there, or not; nothing else is.
    there = {f.name for f in tmp_path.iterdir()}
    missing = [at for at in range(3) if sink.file_name(plan, plan.ranges[at]) not in there]
    assert 1 in missing
    assert len(there) == 3 - len(missing)
    assert sink.already_done(plan) is None

    asked.clear()
    sink.write(plan, lambda p: (asked.append(p.ranges[0].bucket), read(p))[1])
    assert sorted(asked) == missing
    assert ids(pq.read_table(tmp_path)) == expected_ids(plan)


def test_discard_and_sweep(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    plan = make_plan((0, 0, 5), (1, 0, 5))
    sink.write(plan, read)
    (tmp_path / ".half.tmp").write_bytes(b"x")
    assert sink.sweep() == 0
    assert sink.sweep(age_s=0) == 1
    assert sink.discard(plan) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room(tmp_path: Path) -> None:
    """A typed error, nothing is left behind, and the same plan can be written later."""
    sink, plan = ParquetSink(tmp_path), make_plan((0, 0, 250))
    with full_disk(file_bytes_max=1 << 10), pytest.raises(StorageError, match="no room"):
        sink.write(plan, read)
    assert list(tmp_path.iterdir()) == []
    sink.write(plan, read)
    assert ids(pq.read_table(tmp_path)) == expected_ids(plan)


def test_empty_plan_and_empty_range(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    assert sink.write(make_plan(), read).rows == 0
    plan = make_plan((0, 3, 5))
    empty = read(make_plan((0, 3, 3)))
    assert sink.write(plan, lambda _: empty).rows == 0
    done = sink.already_done(plan)
    assert done is not None
    assert done.rows == 0


def test_fsspec_file_system() -> None:
    memory = fsspec.filesystem("memory")
    sink = ParquetSink("/sink-test/out", filesystem=memory)
    plan = make_plan((0, 0, 5))
    sink.write(plan, read)
    names = [path.rpartition("/")[2] for path in memory.ls("/sink-test/out", detail=False)]
    assert names == [sink.file_name(plan, plan.ranges[0])]
    assert sink.already_done(plan) is not None
    memory.rm("/sink-test", recursive=True)


def test_uri(tmp_path: Path) -> None:
    sink = ParquetSink((tmp_path / "by-uri").as_uri())
    plan = make_plan((0, 0, 5))
    sink.write(plan, read)
    assert len(visible(tmp_path / "by-uri")) == 1
