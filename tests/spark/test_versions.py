"""The releases of PySpark that the docs name: the same smoke test in an environment of each."""

from __future__ import annotations

import pytest

from tests.version_matrix import VERSIONS, Version, run


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "version", [v for v in VERSIONS if v.part == "spark"], ids=lambda v: v.name
)
def test_smoke_on_other_releases(version: Version) -> None:
    found = run(version)
    assert found["result"] == "passed", found
    assert found["pyspark"].startswith(f"{version.name}.")
