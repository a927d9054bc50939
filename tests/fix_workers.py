"""Which worker of a parallel run takes which tests: a file stays together, and some whole folders.

Tests of Airflow share a metadata database, those of Spark a session; each takes ten seconds of CPU
time to make and is slow at first, so one worker has it, and not each of them.
"""

from __future__ import annotations

from typing import Any

import pytest

TOGETHER = ("tests/airflow_provider/", "tests/spark/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """`--dist loadfile`, but for these folders if all tests run: alone, one has all workers."""
    all_tests = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if config.getvalue("dist") != "loadfile" or not all_tests:
        return None
    from xdist.scheduler import LoadFileScheduling

    class FoldersTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    return FoldersTogether(config, log)
