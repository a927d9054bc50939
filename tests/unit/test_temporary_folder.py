"""Temporary folders of many processes in one place."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fluss_client.backend.temporary_folder import LOCK_FILE, YOUNG_S, TemporaryFolder, sweep

ROUNDS, AT_ONCE = 150, 8


def test_folders_that_are_made_at_once_are_not_swept(tmp_path: Path) -> None:
    """Locks belong to open files, so threads compete for them as processes do."""

    def make(_: int) -> bool:
        folder = TemporaryFolder(str(tmp_path))
        try:
            sweep(tmp_path)
            return (folder.path / LOCK_FILE).exists()
        finally:
            folder.close()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        assert all(threads.map(make, range(ROUNDS)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("age_s", [0.0, YOUNG_S + 1])
def test_a_process_that_died_before_it_locked_its_folder(tmp_path: Path, age_s: float) -> None:
    """A young folder may be in the making."""
    folder = tmp_path / "fluss-state-abc"
    folder.mkdir()
    (folder / "000012.sst").write_bytes(b"rows")
    os.utime(folder, (time.time() - age_s, time.time() - age_s))
    sweep(tmp_path)
    assert folder.exists() is (age_s == 0.0)
