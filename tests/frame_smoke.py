"""Frames in and out of a table, on whatever pandas, polars and Python run this file.

    python -m tests.frame_smoke DIRECTORY [pandas|polars]

It needs the base of this project and the named package. It prints one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import platform
import sys
from typing import Any

from fluss_client import Config, FlussConnection
from fluss_orchestrate import IncrementalScan
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables

ROWS = {"id": [1, 2, 3], "name": ["a", None, "ü"], "amount": [1.5, 2.5, None]}
SPEC = {
    "table": "smoke.frames",
    "columns": {"id": "bigint", "name": "string", "amount": "double"},
    "buckets": 1,
}


def smoke(directory: str, package: str | None) -> dict[str, Any]:
    """Write a frame of the package (Arrow without one) and read it back in both ways."""
    import pyarrow as pa

    found = {"python": platform.python_version(), "pyarrow": pa.__version__}
    rows: Any = pa.table(ROWS)
    if package is not None:
        module = importlib.import_module(package)
        found[package] = module.__version__
        rows = module.DataFrame(ROWS)
        if package == "pandas":
            rows = rows.astype({"name": "string"})
    with FlussConnection.create(
        Config({"bootstrap.servers": f"embedded:{directory}"})
    ).result() as client:
        client.get_admin().result().create_database("smoke", ignore_if_exists=True).result()
        spec = TableSpec.from_mapping(SPEC)
        apply_tables(client, [spec])
        assert load_rows(client, spec.table, rows, "frame").rows == 3
        with IncrementalScan(client, spec.table, "smoke").run("run") as run:
            assert run.to_arrow().to_pydict() == ROWS
        scanner = client.get_table(spec.path).result().new_scan().create_record_batch_log_scanner()
        opened = scanner.result()
        opened.subscribe(0, 0)
        if package == "pandas":
            frame = opened.to_pandas()
            assert frame["id"].tolist() == [1, 2, 3]
        elif package == "polars":
            frame = importlib.import_module(package).from_arrow(opened.to_arrow())
            assert frame["name"].to_list() == ROWS["name"]
    return found


if __name__ == "__main__":
    print(json.dumps(smoke(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)))
