"""The bulk load job: run it by spark-submit, or by `python -m fluss_orchestrate.spark.bulk_load`.

    spark-submit bulk_load.py --spec SPEC --cluster CLUSTER [--receipt FILE]

SPEC is a `BulkLoadSpec` as JSON and CLUSTER a `ClusterRef` as JSON, or @ and a file that holds it.
The receipt is printed, and written to FILE where one is named.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Load, print the receipt, and return 0; on failure one sentence and 1."""
    # Spark puts the folder of the application first on the path, where our `loading` and `source`
    # would hide modules of the same names.
    here = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    from fluss_client.errors import FlussError
    from fluss_orchestrate.core.clusters import ClusterRef
    from fluss_orchestrate.core.spark_submit.job import ERROR_MARK, RECEIPT_MARK
    from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec
    from fluss_orchestrate.spark.errors import sentence
    from fluss_orchestrate.spark.loading.load import check_target, run_load
    from fluss_orchestrate.spark.loading.waves import say
    from fluss_orchestrate.spark.setup import make_session

    parsed = _parse(arguments)
    spark = None
    try:
        spec = BulkLoadSpec.from_json(_text(parsed.spec))
        cluster = ClusterRef.from_json(json.loads(_text(parsed.cluster)))
        check_target(spec, cluster)
        spark = make_session(f"load {spec.table}")
        say(f"application {spark.sparkContext.applicationId}")
        receipt = run_load(spark, spec, cluster)
    except FlussError as error:
        print(f"{ERROR_MARK}{error.message}", flush=True)
        return 1
    except Exception as error:  # noqa: BLE001 - Spark has many; all end the job
        print(f"{ERROR_MARK}{sentence(error)}", flush=True)
        return 1
    finally:
        if spark is not None:
            spark.stop()
    text = json.dumps(receipt.to_json())
    if parsed.receipt:
        _write(Path(parsed.receipt), text)
    print(f"{RECEIPT_MARK}{text}", flush=True)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bulk_load", description="Load rows into Fluss, once.")
    parser.add_argument("--spec", required=True, help="the load as JSON, or @FILE")
    parser.add_argument("--cluster", default="{}", help="the cluster as JSON, or @FILE")
    parser.add_argument("--receipt", help="a file for the receipt")
    return parser.parse_args(arguments)


def _text(value: str) -> str:
    return Path(value[1:]).read_text() if value.startswith("@") else value


def _write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all: a reader that waits for it must not see a part."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


if __name__ == "__main__":
    sys.exit(main())
