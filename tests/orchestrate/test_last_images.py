"""The last image per key: exact against a model, in memory and spilled to disk."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_client.errors import ChangeTypeError, SchemaError, StorageError
from fluss_orchestrate.core import last_images
from fluss_orchestrate.core.last_images import LastImages, hash_partitions

SCHEMA = pa.schema(
    [("a", pa.int32()), ("b", pa.string()), ("v", pa.int64()), ("_change_type", pa.string())]
)
Change = tuple[int, str, int, str]


def batch_of(changes: list[Change]) -> pa.RecordBatch:
    columns = list(zip(*changes, strict=True)) if changes else [[], [], [], []]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def collected(images: LastImages) -> dict[str, dict[Any, Any]]:
    """Everything by key; an assertion fails if a key comes twice."""
    found: dict[str, dict[Any, Any]] = {"upserts": {}, "deletes": {}}
    for part in images.images():
        for name, rows, flags in (
            ("upserts", part.upserts, part.inserted),
            ("deletes", part.deletes, part.vanished),
        ):
            assert len(flags) == rows.num_rows
            for row, flag in zip(rows.to_pylist(), flags.to_pylist(), strict=True):
                key = (row["a"], row["b"])
                assert key not in found["upserts"]
                assert key not in found["deletes"]
                found[name][key] = (row["v"], flag)
    return found


def model(changes: list[Change]) -> dict[str, dict[Any, Any]]:
    found: dict[str, dict[Any, Any]] = {"upserts": {}, "deletes": {}}
    absent: dict[Any, bool] = {}
    for a, b, v, kind in changes:
        if kind == "-U":
            continue
        key = (a, b)
        absent.setdefault(key, kind == "+I")
        found["upserts"].pop(key, None)
        found["deletes"].pop(key, None)
        found["deletes" if kind == "-D" else "upserts"][key] = (v, absent[key])
    return found


CHANGES = st.lists(
    st.lists(
        st.tuples(
            st.integers(-3, 3),
            st.sampled_from(["", "x", "y", "\x00", "long " * 9]),
            st.integers(0, 1000),
            st.sampled_from(["+I", "-U", "+U", "-D"]),
        ),
        max_size=30,
    ),
    max_size=8,
)


@given(CHANGES, st.sampled_from([0, 200, 2000, 1 << 20]))
@settings(max_examples=60, deadline=None)
def test_equals_a_model(batches: list[list[Change]], limit: int) -> None:
    with LastImages(["a", "b"], limit) as images:
        for changes in batches:
            images.add(batch_of(changes))
        wanted = model([c for changes in batches for c in changes])
        assert collected(images) == wanted
        assert collected(images) == wanted
        assert images.changes == sum(map(len, batches))


def test_rows_keep_the_order_of_the_changes() -> None:
    with LastImages(["a", "b"]) as images:
        images.add(batch_of([(1, "x", 1, "+I"), (2, "x", 2, "+I"), (3, "x", 3, "-D")]))
        images.add(batch_of([(1, "x", 1, "-U"), (1, "x", 4, "+U")]))
        (part,) = images.images()
    assert part.upserts.column("v").to_pylist() == [2, 4]
    assert part.upserts.schema.names == ["a", "b", "v"]
    assert part.inserted.to_pylist() == [True, True]
    assert part.vanished.to_pylist() == [False]


def test_spills_beyond_the_limit_and_leaves_nothing(tmp_path: Path) -> None:
    rows, limit = 200_000, 1 << 20
    generator = np.random.default_rng(7)
    keys = generator.permutation(rows).astype(np.int32)
    seen = 0
    with LastImages(["a"], limit, folder=tmp_path) as images:
        for start in range(0, rows, 5_000):
            part = keys[start : start + 5_000]
            images.add(
                pa.RecordBatch.from_pydict(
                    {
                        "a": part,
                        "b": pa.array([f"value {k}" for k in part]),
                        "v": np.arange(start, start + len(part)),
                        "_change_type": np.full(len(part), 1, np.uint8),
                    }
                )
            )
        assert list(tmp_path.iterdir())
        for found in images.images():
            assert found.upserts.nbytes <= 2 * limit
            seen += found.upserts.num_rows
    assert seen == rows
    assert not list(tmp_path.iterdir())


def test_a_large_hash_partition_is_spread_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_images, "HASH_PARTITIONS", 2)
    depths: set[int] = set()
    real = last_images.hash_partitions
    monkeypatch.setattr(
        last_images, "hash_partitions", lambda keys, depth: depths.add(depth) or real(keys, depth)
    )
    changes = [(k, "x", k, "+I") for k in range(2_000)]
    with LastImages(["a", "b"], 4_000) as images:
        for start in range(0, 2_000, 50):
            images.add(batch_of(changes[start : start + 50]))
        values = [v for part in images.images() for v in part.upserts.column("v").to_pylist()]
    assert values == list(range(2_000)), "in the order of the changes"
    assert len(depths) > 1


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [1, -1, None]),
    (pa.int64(), [1, 2**40, None]),
    (pa.bool_(), [True, False, None]),
    (pa.string(), ["", "a", "ab", "ba", None]),
    (pa.large_string(), ["", "a", "b", None]),
    (pa.binary(), [b"", b"\0", b"\0\0", None]),
    (pa.binary(3), [b"abc", b"abd", None]),
    (pa.decimal128(20, 2), [decimal.Decimal("1.10"), decimal.Decimal("-1.10"), None]),
    (pa.date32(), [datetime.date(2024, 1, 1), None]),
    (pa.timestamp("us"), [datetime.datetime(2024, 1, 1), None]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=lambda v: str(v)[:20])
def test_equal_keys_have_the_same_hash(kind: pa.DataType, values: list[Any]) -> None:
    there = pa.array(values * 3, kind)
    moved = pa.concat_arrays([pa.array([values[0]], kind), there])[1:]
    whole = hash_partitions(pa.RecordBatch.from_arrays([there], names=["k"]))
    again = hash_partitions(pa.RecordBatch.from_arrays([moved], names=["k"]))
    assert (whole == again).all()
    assert (whole.reshape(3, len(values)) == whole[: len(values)]).all()


def test_hashes_are_spread() -> None:
    keys = pa.RecordBatch.from_pydict({"k": [f"customer-{n:06d}" for n in range(20_000)]})
    for seed in range(3):
        counts = np.bincount(hash_partitions(keys, seed), minlength=last_images.HASH_PARTITIONS)
        assert counts.min() > 400
        assert counts.max() < 900


def test_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="at least one"):
        LastImages([])
    with LastImages(["a", "missing"]) as images, pytest.raises(SchemaError, match="missing"):
        images.add(batch_of([]))
    with LastImages(["a"]) as images:
        images.add(batch_of([(1, "x", 1, "+I")]))
        with pytest.raises(SchemaError, match="before"):
            images.add(batch_of([(1, "x", 1, "+I")]).select(["a", "_change_type"]))
        with pytest.raises(ChangeTypeError):
            images.add(batch_of([(1, "x", 1, "?")]))
    with (
        LastImages(["a"], 0, folder=tmp_path / "absent") as images,
        pytest.raises(StorageError),
    ):
        images.add(batch_of([(1, "x", 1, "+I")]))


def test_columns_may_have_any_name() -> None:
    """Names of helper columns are no names of a table's columns."""
    names = ["__stays", "__was_absent", "__row", "k0", "__key", "__present", "__ordinal"]
    rows = pa.RecordBatch.from_pydict(
        {
            "id": [1, 1, 2],
            **{name: ["a", "b", "c"] for name in names},
            "_change_type": ["+I", "+U", "-D"],
        }
    )
    with LastImages(["id"], limit_bytes=1) as last:
        last.add(rows)
        last.add(rows)
        found = list(last.images())
    upserts = [row for images in found for row in images.upserts.to_pylist()]
    assert upserts == [{"id": 1, **dict.fromkeys(names, "b")}]
    assert sum(images.deletes.num_rows for images in found) == 1


@pytest.mark.parametrize("limit", [500, 1 << 20])
@pytest.mark.parametrize("columns", [["a"], ["a", "b"], ["a", "b", "c"], ["d", "c"]])
def test_keys_of_far_numbers(columns: list[str], limit: int) -> None:
    """Keys become one number each, which two keys never share."""
    pools: dict[str, tuple[pa.DataType, list[Any]]] = {
        "a": (pa.int64(), [-(2**63), -1, 0, 1, 2**62, 2**63 - 1]),
        "b": (pa.int64(), [-(2**62), 5, 2**63 - 1]),
        "c": (pa.decimal128(20, 2), [decimal.Decimal(n) for n in (-1, 0, 10**15)]),
        "d": (pa.bool_(), [True, False]),
    }
    generator = np.random.default_rng(11)
    wanted: dict[Any, int] = {}
    with LastImages(columns, limit) as images:
        for start in range(0, 400, 40):
            rows = {
                name: [pools[name][1][at] for at in generator.integers(0, len(pools[name][1]), 40)]
                for name in columns
            }
            for at, key in enumerate(zip(*rows.values(), strict=True)):
                wanted[key] = start + at
            arrays = {name: pa.array(values, pools[name][0]) for name, values in rows.items()}
            numbers = {"v": np.arange(start, start + 40), "_change_type": ["+U"] * 40}
            images.add(pa.RecordBatch.from_pydict({**arrays, **numbers}))
        rows_found = [row for part in images.images() for row in part.upserts.to_pylist()]
    assert {tuple(row[name] for name in columns): row["v"] for row in rows_found} == wanted
    assert [row["v"] for row in rows_found] == sorted(wanted.values())
