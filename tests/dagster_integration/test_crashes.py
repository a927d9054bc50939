"""Steps that are killed inside the sink's write, retried and re-executed: each row once."""

from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest

from fluss_client import FlussConnection, TablePath
from tests.dagster_integration.crashing import ROWS
from tests.dagster_integration.tables import append, log_ids, make_table, orders
from tests.fix_either import CLUSTER_FIRST
from tests.forked import own_fork_server  # noqa: F401

NAMES = {"appended", "stored", "copied", "files"}
JOB = "tests.dagster_integration.crashing"
FORKED = {
    "execution": {
        "config": {
            "multiprocess": {
                "max_concurrent": 2,
                "start_method": {"forkserver": {"preload_modules": [JOB]}},
            }
        }
    }
}


def file_ids(folder: Path) -> list[int]:
    found = sorted(folder.glob("*.parquet"))
    return sorted(i for file in found for i in pq.read_table(file)["id"].to_pylist())


@pytest.mark.parametrize("fluss_kind", CLUSTER_FIRST, indirect=True)
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("own_fork_server")
def test_killed_retried_and_re_executed(
    fluss_address: str, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    for name in ("appended", "stored", "copied"):
        make_table(connection, TablePath(database, name))
    # Rows go by their ids, so that both buckets have some and the plan two ranges.
    source = make_table(connection, TablePath(database, "source"), bucket_keys=["id"])
    append(connection, source, orders(ROWS))
    settings = (fluss_address, database, str(tmp_path))
    job = dg.build_reconstructable_job(JOB, "crashing_job", settings)
    with dg.instance_for_test() as instance:
        with dg.execute_job(job, instance, run_config=FORKED, raise_on_error=False) as first:
            assert first.success, [
                str(e.step_failure_data) for e in first.get_step_failure_events()
            ]
        retried = {e.step_key.split("__")[-1] for e in first.all_events if e.is_step_restarted}
        assert retried == NAMES
        assert {path.stem for path in tmp_path.glob("*.died")} == NAMES

        def check() -> None:
            for name in ("appended", "stored", "copied"):
                assert log_ids(connection, TablePath(database, name)) == list(range(ROWS)), name
            assert file_ids(tmp_path / "files") == list(range(ROWS))

        check()
        options = dg.ReexecutionOptions(first.run_id)
        in_process = {"execution": {"config": {"in_process": {}}}}
        with dg.execute_job(
            job, instance, run_config=in_process, reexecution_options=options
        ) as again:
            assert again.success
        run = instance.get_run_by_id(again.run_id)
        assert run is not None
        assert run.root_run_id == first.run_id
        check()
