"""The programs of docs/dagster.md run as they stand, one after the other."""

from pathlib import Path

import pytest

import fluss_orchestrate.dagster as package
from fluss_orchestrate import FlussCheckpointStore
from fluss_orchestrate.dagster import FlussResource
from tests.examples.documents import programs


def test_the_programs_of_the_document(tmp_path: Path) -> None:
    address = f"embedded:{tmp_path / 'fluss'}"
    names = {"ADDRESS": address, "FOLDER": str(tmp_path / "files"), "__name__": "document"}
    found = programs("docs/dagster.md")
    assert len(found) >= 5
    for number, program in enumerate(found):
        exec(compile(program, f"docs/dagster.md, program {number + 1}", "exec"), names)
    fluss = FlussResource(bootstrap_servers=address, cluster_alias="shop")
    store = FlussCheckpointStore(fluss.connection)
    assert store.head("dagster/orders_files") is not None


@pytest.mark.parametrize("name", package.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(package, name) is not None
