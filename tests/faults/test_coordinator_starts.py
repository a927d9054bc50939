"""A coordinator that has just started refuses what it cannot answer yet: it is asked again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client.errors import LeaderNotAvailableError, UnknownServerError, error_for
from fluss_client.testing import LocalCluster
from tests.contract.tables import Tables, done
from tests.faults.recording import FaultRecorder
from tests.waiting import WAIT_S, wait_until

KILLS_SHORT, KILLS_LONG = 1, 20
TABLET_SERVERS = 1
FROM_SERVER = [
    (-1, "java.lang.IllegalStateException: CoordinatorEventProcessor is not initialized yet."),
    (17, "Replication factor: 3 larger than available tablet servers: 0."),
]


@pytest.mark.parametrize(("code", "message"), FROM_SERVER)
def test_its_answers_can_be_retried(code: int, message: str) -> None:
    error = error_for(code, message)
    assert isinstance(error, LeaderNotAvailableError)
    assert error.is_retriable
    assert message in error.message


def test_other_answers_with_these_codes_are_what_they_were() -> None:
    assert type(error_for(-1, "java.lang.IllegalStateException: another")) is UnknownServerError
    few = error_for(17, "Replication factor: 3 larger than available tablet servers: 2.")
    assert not few.is_retriable, "a cluster with two servers stays one with two servers"


@pytest.mark.timeout(1800)
def test_every_question_is_answered_through_the_death_of_the_coordinator(
    make_cluster: Callable[..., LocalCluster], record_fault: FaultRecorder, long_form: bool
) -> None:
    """Who asks knows nothing of the coordinator: connections that stand, and fresh ones."""
    cluster = make_cluster(tablet_servers=TABLET_SERVERS)
    config = fluss.Config(
        {
            "bootstrap.servers": cluster.up().bootstrap_servers,
            "request-timeout": f"{2 * WAIT_S:g}s",
        }
    )
    over = threading.Event()
    with done(fluss.FlussConnection.create(config)) as connection:
        admin = done(connection.get_admin())
        done(admin.create_database("d"))
        tables = Tables(connection, admin, "d")
        path = tables.create({"id": pa.int64(), "n": pa.int64()}, ["id"]).get_table_path()

        def connect() -> None:
            with done(fluss.FlussConnection.create(config)) as fresh:
                assert done(done(fresh.get_admin()).get_table_info(path)).table_path == path

        def create() -> None:
            done(admin.create_table(fluss.TablePath("d", "t"), _descriptor(), True))
            done(admin.drop_table(fluss.TablePath("d", "t"), True))

        def count_servers() -> None:
            assert len(done(admin.get_server_nodes())) == 1 + TABLET_SERVERS

        def list_snapshots() -> None:
            done(admin.list_kv_snapshots(path))

        answered: Counter[str] = Counter()

        def repeat(ask: Callable[[], None]) -> None:
            while not over.is_set():
                ask()
                answered[ask.__name__] += 1

        questions = (connect, create, count_servers, list_snapshots)
        kills = KILLS_LONG if long_form else KILLS_SHORT
        with ThreadPoolExecutor(len(questions)) as pool:
            asking = [pool.submit(repeat, ask) for ask in questions]
            try:
                for _ in range(kills):
                    cluster.kill("coordinator")
                    cluster.start("coordinator")
                    before = answered.copy()
                    wait_until(
                        "an answer to each question, or an error",
                        lambda before=before: (
                            any(future.done() for future in asking)
                            or all(answered[a.__name__] > before[a.__name__] + 1 for a in questions)
                        ),
                    )
            finally:
                over.set()
        for future in asking:
            future.result()
    record_fault("kill -9 of the coordinator under questions", kills, stages=answered)


def _descriptor() -> fluss.TableDescriptor:
    return fluss.TableDescriptor(fluss.Schema(pa.schema([("id", pa.int64())])), bucket_count=1)
