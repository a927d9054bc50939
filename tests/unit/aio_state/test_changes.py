"""Changes of a changelog laid over a key state, against a dict that does the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluss_client.aio.state.changes import Changes, count_until, lay_over
from fluss_client.errors import StorageError
from fluss_client.model.cluster import ChangeType

SCHEMA = pa.schema([("value", pa.int64())])
KEYS = st.binary(min_size=1, max_size=2)
WRITES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 99))), max_size=60)


def changelog(
    state: dict[bytes, int], writes: list[tuple[bytes, int | None]]
) -> list[tuple[bytes, ChangeType, int]]:
    """The changes that writes make in a state, which is changed with them."""
    changes = []
    for key, value in writes:
        old = state.get(key)
        if value is None:
            if old is not None:
                changes.append((key, ChangeType.Delete, state.pop(key)))
        elif old is None:
            changes.append((key, ChangeType.Insert, value))
            state[key] = value
        else:
            changes.append((key, ChangeType.UpdateBefore, old))
            changes.append((key, ChangeType.UpdateAfter, value))
            state[key] = value
    return changes


def added(changes: Changes, log: list[tuple[bytes, ChangeType, int]], size: int) -> None:
    for start in range(0, len(log), size):
        part = log[start : start + size]
        changes.add(
            pa.array([key for key, _, _ in part], pa.binary()),
            np.array([int(kind) for _, kind, _ in part], np.uint8),
            pa.record_batch([pa.array([value for _, _, value in part], pa.int64())], schema=SCHEMA),
        )


def merged(base: dict[bytes, int], changes: Changes, chunk: int) -> list[int]:
    """The rows in key order, with the base read in chunks, as a reader does it."""
    found: list[int] = []
    all_keys = sorted(base)
    for start in range(0, len(all_keys), chunk):
        part = all_keys[start : start + chunk]
        keys = pa.array(part, pa.binary())
        rows = pa.record_batch([pa.array([base[key] for key in part], pa.int64())], schema=SCHEMA)
        for over in changes.parts_until(part[-1]):
            count = count_until(keys, over.keys[-1].as_py())
            found += lay_over(keys[:count], rows[:count], over).column(0).to_pylist()
            keys, rows = keys[count:], rows[count:]
        found += rows.column(0).to_pylist()
    for rest in changes.parts_until():
        found += rest.rows.filter(rest.present).column(0).to_pylist()
    return found


@pytest.mark.parametrize("memory", [1, 1 << 20], ids=["spilled", "in memory"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(before=WRITES, after=WRITES, size=st.integers(1, 7), chunk=st.integers(1, 5))
def test_states_go_forward_and_back(
    memory: int,
    before: list[tuple[bytes, int | None]],
    after: list[tuple[bytes, int | None]],
    size: int,
    chunk: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    state: dict[bytes, int] = {}
    changelog(state, before)
    first = dict(state)
    log = changelog(state, after)

    for back, base, wanted in ((False, first, state), (True, state, first)):
        folder = tmp_path_factory.mktemp("runs")
        changes = Changes(SCHEMA, folder, back=back, memory_bytes_max=memory, runs_max=3)
        added(changes, log, size)
        assert merged(base, changes, chunk) == [wanted[key] for key in sorted(wanted)]


def test_memory_is_bounded_by_files(tmp_path: Path) -> None:
    changes = Changes(SCHEMA, tmp_path, back=False, memory_bytes_max=1 << 16)
    number = 20_000
    for start in range(0, number, 1000):
        keys = [(at * 7919 % number).to_bytes(4, "big") for at in range(start, start + 1000)]
        rows = pa.record_batch([pa.array(range(start, start + 1000), pa.int64())], schema=SCHEMA)
        kinds = np.full(1000, int(ChangeType.Insert), np.uint8)
        changes.add(pa.array(keys, pa.binary()), kinds, rows)
    assert len(list(tmp_path.iterdir())) > 3
    parts = [part.keys.to_pylist() for part in changes.parts_until()]
    assert [key for part in parts for key in part] == [
        at.to_bytes(4, "big") for at in range(number)
    ]


def test_many_keys_between_two_rows_come_in_parts(tmp_path: Path) -> None:
    """Most of the changes may lie between two rows of a base that was small."""
    count = 300_000
    changes = Changes(SCHEMA, tmp_path, back=False, memory_bytes_max=4 << 20)
    for start in range(0, count, 10_000):
        numbers = np.arange(start, start + 10_000)
        stored = pa.py_buffer((numbers * 7919 % count).astype(">i8").tobytes())
        keys = pa.Array.from_buffers(pa.binary(8), len(numbers), [None, stored]).cast(pa.binary())
        rows = pa.record_batch([pa.array(numbers)], schema=SCHEMA)
        changes.add(keys, np.full(len(numbers), int(ChangeType.Insert), np.uint8), rows)
    found = 0
    for part in changes.parts_until(b"\xff"):
        assert part.rows.nbytes + part.keys.nbytes < 1 << 20
        found += part.rows.num_rows
    assert found == count


def test_no_room_for_changes_is_an_error(tmp_path: Path) -> None:
    changes = Changes(SCHEMA, tmp_path / "gone", back=False, memory_bytes_max=1)
    with pytest.raises(StorageError, match=r"cannot write .* Set scanner.state.folder"):
        added(changes, [(b"key", ChangeType.Insert, 1)], 1)


GROWTH = """
import tempfile
from pathlib import Path
import numpy as np
import pyarrow as pa
from fluss_client import ChangeType
from fluss_client.aio.state.changes import Changes

def memory_mb(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024

schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
kinds = np.full(20_000, int(ChangeType.UpdateAfter), np.uint8)
text = "the text of a row, which is about eighty bytes long, with nothing in front."
texts = pa.array([text] * 20_000)

def add(changes, first):
    ids = np.arange(first, first + 20_000)
    stored = pa.py_buffer(ids.astype(">i8").tobytes())
    keys = pa.Array.from_buffers(pa.binary(8), len(ids), [None, stored]).cast(pa.binary())
    changes.add(keys, kinds, pa.RecordBatch.from_arrays([pa.array(ids), texts], schema=schema))

with tempfile.TemporaryDirectory() as folder:
    warm = Changes(schema, Path(folder), back=False, memory_bytes_max=1)
    add(warm, 0)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_mb("VmRSS")
    (Path(folder) / "own").mkdir()
    changes = Changes(schema, Path(folder) / "own", back=False)
    for first in range(0, 1_000_000, 20_000):
        add(changes, first)
    rows = sum(found.rows.num_rows for found in changes.parts_until())
    print(rows, memory_mb("VmHWM") - before)
"""


def test_memory_is_bounded_however_many_changes_there_are() -> None:
    """A read of the state may grow by 300 MB in all, of which the snapshot needs about 100."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows, grown_mb = done.stdout.split()
    assert int(rows) == 1_000_000
    assert float(grown_mb) < 200
