"""`python -m benchmarks.orchestration.imports STATEMENT`: how long an import takes at first."""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    statement = compile(sys.argv[1], "<import>", "exec")
    started = time.perf_counter()
    exec(statement, {})
    print(json.dumps({"ms": (time.perf_counter() - started) * 1000}))


if __name__ == "__main__":
    main()
