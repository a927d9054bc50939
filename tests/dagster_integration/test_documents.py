"""The programs of docs/dagster.md run as they stand, one after the other."""

import re
from pathlib import Path

import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

import fluss_orchestrate.dagster as package
from fluss_orchestrate import FlussCheckpointStore
from fluss_orchestrate.dagster import FlussResource
from fluss_orchestrate.dagster.components import FlussDatabaseComponent
from tests.examples.documents import programs

ROOT = Path(__file__).parents[2]


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


def test_the_components_of_the_document() -> None:
    """What the page writes in YAML is what the component takes; the second block continues it."""
    text = (ROOT / "docs/dagster.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    written = yaml.safe_load("".join(blocks).replace("{{ env.FLUSS_BOOTSTRAP_SERVERS }}", "a:1"))
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(FlussDatabaseComponent, defs_yaml_contents=written)
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, definitions):
            keys = {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()}
    made = {f"shop/events_{kind}" for kind in ("files", "copy", "daily", "sql", "iceberg")}
    made |= {"shop/customers", "shop/customers_sql"}
    assert keys == {"shop/events", *made}, "the tables are there as what they depend on"


@pytest.mark.parametrize("name", package.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(package, name) is not None
