"""docs/airflow.md: its programs make DAGs that Airflow takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.airflow_provider.running import new_bag, register

pytestmark = pytest.mark.usefixtures("airflow_home")
PAGE = Path(__file__).parents[2] / "docs" / "airflow.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


NEWER = pytest.mark.airflow_has("asset_partitions")


@pytest.mark.parametrize(
    "program",
    [pytest.param(p, marks=NEWER if "PartitionedAssetTimetable" in p else ()) for p in PROGRAMS],
    ids=range(len(PROGRAMS)),
)
def test_the_pages_programs_make_dags(program: str, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text(program)
    bag = new_bag(tmp_path)
    assert bag.import_errors == {}
    assert bag.dags
    for dag in bag.dags.values():
        register(dag)
