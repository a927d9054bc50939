"""The key state: look-ups, scans, schemas that change, what is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fluss_client.backend.contract import LookupAnswer, TableChange
from fluss_client.backend.embedded.backend import EmbeddedBackend
from fluss_client.backend.embedded.keys.state import prefix_end
from fluss_client.backend.embedded.maintenance import check
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.errors import (
    DeletionDisabledError,
    FlussError,
    InvalidTableError,
    InvalidTargetColumnError,
    NonPrimaryKeyTableError,
    OutOfOrderSequenceError,
    RowError,
    UnknownServerError,
)
from fluss_client.model.schema import Column
from fluss_client.model.table import TableInfo
from fluss_client.model.types import DataTypes
from tests.embedded.helpers import (
    Row,
    end_of,
    key_state,
    key_table,
    keys_of,
    make_table,
    on_loop,
    opened,
    place_of,
    read_log,
    upsert,
)


def row(k: int, a: str | None = "a", b: int | None = 1) -> Row:
    return {"k": k, "a": a, "b": b}


async def found(
    backend: EmbeddedBackend, table: TableInfo, answer: LookupAnswer
) -> tuple[list[int], list[Row]]:
    assert answer.error is None
    batch = await backend.decode_values(table, answer.values, None)
    return answer.counts.tolist(), batch.to_pylist()


def test_look_ups_find_what_was_written(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await key_table(backend)
            await upsert(backend, table, [row(n, str(n)) for n in range(2000)])
            place = place_of(table)
            for wanted in ([5], [7, 5000, 3, 7], list(range(1900, 2100))):
                asked = {place: keys_of(table, [{"k": k} for k in wanted])}
                counts, rows = await found(
                    backend, table, (await backend.lookup(table, 0, asked))[place]
                )
                assert counts == [int(k < 2000) for k in wanted]
                assert rows == [row(k, str(k)) for k in wanted if k < 2000]
                few = [(place, key) for key in asked[place].to_list()]
                answers = await backend.lookup_few(table, 0, few, False)
                assert [len(a) if isinstance(a, list) else a for a in answers] == counts

    on_loop(run())


def test_prefix_look_ups_give_their_rows_in_key_order(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.int32(), nullable=False)]
    )

    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(
                backend, schema=schema, keys=["x", "y"], bucket_keys=["x"], bucket_count=1
            )
            rows = [{"x": x, "y": y} for x in (1, 127, 128) for y in range(3)]
            await upsert(backend, table, rows)
            place = place_of(table)
            prefixes = [bytes([1]), bytes([127]), bytes([5])]
            answers = await backend.prefix_lookup(table, 0, {place: Blobs.from_list(prefixes)})
            counts, held = await found(backend, table, answers[place])
            assert counts == [3, 3, 0]
            assert held == rows[:6]
            few = await backend.lookup_few(table, 0, [(place, p) for p in prefixes], True)
            assert [len(a) if isinstance(a, list) else a for a in few] == counts

    on_loop(run())


def test_the_end_of_a_prefix() -> None:
    assert prefix_end(b"ab") == b"ac"
    assert prefix_end(b"a\xff") == b"b"
    assert prefix_end(b"\xff\xff") is None
    assert prefix_end(b"") is None


def test_look_ups_in_a_log_table_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            place, keys = place_of(table), Blobs.from_list([b"x"])
            for answers in (
                await backend.lookup(table, 0, {place: keys}),
                await backend.prefix_lookup(table, 0, {place: keys}),
            ):
                assert isinstance(answers[place].error, NonPrimaryKeyTableError)
            few = await backend.lookup_few(table, 0, [(place, b"x")], False)
            assert isinstance(few[0], NonPrimaryKeyTableError)

    on_loop(run())


def test_rows_of_older_schemas_stay_as_they_were_written(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            old = await key_table(backend)
            await upsert(backend, old, [row(1), row(2)])
            change = TableChange(add_columns=(Column("c", DataTypes.string()),))
            await backend.alter_table(old.table_path, change, False)
            new = await backend.get_table_info(old.table_path)
            await upsert(backend, new, [{**row(2), "c": "new"}, {**row(3), "c": "c"}])
            await upsert(backend, old, [row(3, "back")])
            # The changelog is always in the newest schema.
            assert [(kind, r["k"], r["c"]) for _, kind, r in await read_log(backend, new)] == [
                ("+I", 1, None),
                ("+I", 2, None),
                ("-U", 2, None),
                ("+U", 2, "new"),
                ("+I", 3, "c"),
                ("-U", 3, "c"),
                ("+U", 3, None),
            ]
            assert [r["c"] for r in await key_state(backend, new)] == [None, "new", None]
            ack = await upsert(backend, new, [{**row(1, "part"), "c": "p"}], targets=[0, 3])
            assert ack.error is None
            assert (await key_state(backend, new))[0] == {**row(1), "c": "p"}

    on_loop(run())
    assert check(tmp_path) == []


def test_many_rows_with_keys_more_than_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await key_table(backend)
            await upsert(backend, table, [row(n % 500, str(n), n) for n in range(3000)])
            state = {r["k"]: r["b"] for r in await key_state(backend, table)}
            assert state == {k: 2500 + k for k in range(500)}
            assert await end_of(backend, table) == 500 + 2 * 2500
            assert await backend.get_table_stats(table, [place_of(table)]) == {place_of(table): 500}

    on_loop(run())
    assert check(tmp_path) == []


def test_a_changelog_that_is_stored_by_column(tmp_path: Path) -> None:
    rows = [row(n, f"name {n}", n) for n in range(20_000)]

    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await key_table(backend)
            await upsert(backend, table, rows)
            await upsert(backend, table, [{**r, "b": -r["b"]} for r in rows])
            log = await read_log(backend, table, offset=19_999)
            assert [kind for _, kind, _ in log[:3]] == ["+I", "-U", "+U"]
            assert [r["b"] for _, _, r in log[-2:]] == [19_999, -19_999]
            assert len(log) == 1 + 40_000
            asked = {place_of(table): keys_of(table, rows)}
            answer = (await backend.lookup(table, 0, asked))[place_of(table)]
            assert answer.counts.sum() == 20_000
            batch = await backend.decode_values(table, answer.values, (0,))
            assert batch.column(0).to_pylist() == [r["k"] for r in rows]

    on_loop(run())
    assert check(tmp_path) == []


@pytest.mark.parametrize("kv_format", ["compacted", "indexed"])
def test_both_formats_of_rows(tmp_path: Path, kv_format: str) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await key_table(backend, properties={"table.kv.format": kv_format})
            await upsert(backend, table, [row(1), row(2, None, None)])
            await upsert(backend, table, [row(1, "x")], targets=[0, 1])
            assert await key_state(backend, table) == [row(1, "x"), row(2, None, None)]

    on_loop(run())
    assert check(tmp_path) == []


def test_what_is_refused_leaves_no_trace(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            disabled = await key_table(
                backend, "d", properties={"table.delete.behavior": "disable"}
            )
            first = await key_table(backend, "f", properties={"table.merge-engine": "first_row"})
            wal = await key_table(backend, "w", properties={"table.changelog.image": "WAL"})
            plain = await key_table(backend, "p")
            log = await make_table(backend, "l")

            async def refused(ack_of: object, kind: type[FlussError]) -> None:
                ack = await ack_of  # type: ignore[misc]
                assert type(ack.error) is kind

            await refused(
                upsert(backend, disabled, [row(1), row(2)], [False, True]), DeletionDisabledError
            )
            await refused(upsert(backend, first, [row(1)], targets=[0, 1]), UnknownServerError)
            await refused(
                upsert(backend, plain, [row(1)], targets=[1, 2]), InvalidTargetColumnError
            )
            await refused(
                upsert(backend, plain, [row(1)], writer_id=5, sequence=3), OutOfOrderSequenceError
            )
            with pytest.raises(InvalidTableError):
                await backend.get_table_stats(wal, [place_of(wal)])
            for table in (disabled, first, plain, log):
                assert await end_of(backend, table) == 0
            with pytest.raises(RowError, match="deletes"):
                backend.encode_upsert(plain, Blobs.from_list([b"k"]), Blobs.from_list([b""]), None)
            with pytest.raises(RowError, match="rows"):
                backend.encode_upsert(plain, Blobs.from_list([b"k"]), Blobs.from_list([]), None)
            nothing = pa.RecordBatch.from_pylist([], schema=plain.schema.wire)
            one = Blobs.from_list([b"k"])
            with pytest.raises(RowError, match="1 encoded rows, but 0 as Arrow"):
                backend.encode_upsert(plain, one, one, None, [nothing])

    on_loop(run())


def test_an_upsert_sent_again_counts_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await key_table(backend)
            for sequence, expected in ((0, 1), (0, 1), (1, 3), (0, 1), (1, 3), (2, 5)):
                ack = await upsert(
                    backend, table, [row(1, f"v{sequence}")], writer_id=9, sequence=sequence
                )
                assert (ack.error, ack.offset) == (None, expected)
            assert await key_state(backend, table) == [row(1, "v2")]

    on_loop(run())
