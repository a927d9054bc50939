"""A mirror in PostgreSQL, and the same done by hand: one COPY and one MERGE."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import sqlalchemy as sa

from benchmarks.harness import Measured, stopwatch
from benchmarks.key_tables import Ids
from benchmarks.mirrors.source import Source, copy_databases
from fluss_orchestrate import SqlCheckpointStore, SqlSink, mirror_table
from tests.fix_postgres import administer

TABLE, CHECKPOINT = "target", "to-postgres"
WORK, KEPT = "work", "kept"
STAGE = f"CREATE TEMPORARY TABLE staged (LIKE {TABLE}, gone boolean) ON COMMIT DROP"
COPY = "COPY staged FROM STDIN WITH (FORMAT csv)"
MERGE = f"""
MERGE INTO {TABLE} t USING staged s ON t.id = s.id
WHEN MATCHED AND s.gone THEN DELETE
WHEN MATCHED THEN UPDATE SET name = s.name, score = s.score, ts = s.ts
WHEN NOT MATCHED AND NOT s.gone THEN INSERT VALUES (s.id, s.name, s.score, s.ts)
"""
SUM = f"SELECT count(*), sum(id), sum(round(score * 100)::bigint) FROM {TABLE}"


class PostgresCopy:
    """The mirror after its first plan, which each round begins with."""

    def __init__(self, source: Source, folder: Path, server: str) -> None:
        self._source = source
        self._server = server
        self._engine = sa.create_engine(
            f"{server.rpartition('/')[0]}/{WORK}", poolclass=sa.NullPool
        )
        self._checkpoints, self._kept_checkpoints = folder / "work.db", folder / "kept.db"
        administer(server, f"CREATE DATABASE {WORK}")
        self._mirrored("first")
        copy_databases([(self._checkpoints, self._kept_checkpoints)])
        administer(server, f"ALTER DATABASE {WORK} RENAME TO {KEPT}")

    def mirror(self) -> Measured:
        """The second plan of the mirror."""
        self._begin()
        measured = stopwatch(lambda: (self._source.size.changes, self._mirrored("second")))
        return self._checked(measured)

    def merge_images(self) -> Measured:
        """The last images alone, which are in memory."""
        images = self._source.images
        self._begin()
        measured = stopwatch(lambda: (self._source.size.changes, self._merged(*images)))
        return self._checked(measured)

    def merge_changes(self) -> Measured:
        """The changelog by a scanner, its last images, then the same."""
        self._begin()

        def work() -> tuple[float, object]:
            return self._source.size.changes, self._merged(*self._source.reduced_changes())

        return self._checked(stopwatch(work))

    def _mirrored(self, run_key: str) -> None:
        store = SqlCheckpointStore(f"sqlite:///{self._checkpoints}")
        sink = SqlSink(self._engine, TABLE, form="mirror")
        table = self._source.table
        mirror_table(
            table.connection, table.path, sink, run_key, checkpoint=CHECKPOINT, store=store
        )

    def _merged(self, rows: pa.Table, gone: Ids) -> None:
        flagged = rows.append_column("gone", pa.repeat(False, rows.num_rows))
        keys = pa.table({"id": gone, "gone": pa.repeat(True, len(gone))})
        staged = pa.concat_tables([flagged, keys], promote_options="default")
        data = io.BytesIO()
        csv.write_csv(staged, data, csv.WriteOptions(include_header=False))
        data.seek(0)
        with self._engine.begin() as connection:
            connection.exec_driver_sql(STAGE)
            driver = connection.connection.driver_connection
            assert driver is not None
            with driver.cursor() as cursor:
                cursor.copy_expert(COPY, data)
            connection.exec_driver_sql(MERGE)

    def _begin(self) -> None:
        """Bring the database and the checkpoint back to the end of the first plan."""
        administer(
            self._server,
            f"DROP DATABASE IF EXISTS {WORK}",
            f"CREATE DATABASE {WORK} TEMPLATE {KEPT}",
            "CHECKPOINT",
        )
        copy_databases([(self._kept_checkpoints, self._checkpoints)])

    def _checked(self, measured: Measured) -> Measured:
        """The figure, and what the table holds now."""
        with self._engine.connect() as connection:
            found = tuple(connection.exec_driver_sql(SUM).one())
        return Measured(measured.value, found)
