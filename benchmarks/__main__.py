"""`python -m benchmarks [--quick] [--rounds N] [--only TEXT] [--json FILE] [--bootstrap ADDR]`."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from benchmarks.client.cases import ClientCases
from benchmarks.client.data import FULL, QUICK
from benchmarks.harness import report, run, write_json
from fluss_client.testing import LocalCluster


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller data, under three minutes")
    parser.add_argument("--rounds", type=int, default=0, help="rounds per case")
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--bootstrap", default="", help="use this cluster instead of a new one")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    rounds = options.rounds or (3 if options.quick else 5)
    with _cluster(options.bootstrap) as bootstrap:
        client = ClientCases(bootstrap, sizes)
        try:
            chosen = [case for case in client.cases() if options.only in case.name]
            results = run(chosen, rounds)
        finally:
            client.close()
    print(report(results))
    if options.json:
        write_json(results, options.json, _facts(rounds, options.quick))


@contextlib.contextmanager
def _cluster(bootstrap: str) -> Iterator[str]:
    if bootstrap:
        yield bootstrap
        return
    with (
        tempfile.TemporaryDirectory(prefix="fluss-bench-") as folder,
        LocalCluster(Path(folder) / "cluster") as cluster,
    ):
        yield cluster.info.bootstrap_servers


def _facts(rounds: int, quick: bool) -> dict[str, object]:
    packages = ("fluss-orchestrate", "pyfluss", "pyarrow", "numpy")
    return {
        "rounds": rounds,
        "quick": quick,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


if __name__ == "__main__":
    main()
