"""Generate `fluss_pb2.py` and `fluss_pb2.pyi` from `fluss.proto`, or check that they are current.

    python -m fluss_client.wire.generate [--check]

Both files are committed, so that installing the package needs no compiler. The tools are
grpcio-tools and mypy-protobuf of the development environment; the generated module refuses a
protobuf runtime older than the compiler that made it (`minimum_runtime` reads which).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PROTO = Path(__file__).with_name("fluss.proto")
SOURCE_ROOT = Path(__file__).parents[2]
OUTPUTS = ("fluss_pb2.py", "fluss_pb2.pyi")

_RUNTIME_STAMP = re.compile(r"^# Protobuf Python Version: (\d+)\.(\d+)\.(\d+)$", re.MULTILINE)


def compile_into(folder: Path) -> dict[str, bytes]:
    """Compile the proto file into `folder` and return the text of each output by its name."""
    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"--proto_path={SOURCE_ROOT}",
        f"--plugin=protoc-gen-mypy={plugin}",
        f"--python_out={folder}",
        f"--mypy_out=quiet:{folder}",
        str(PROTO),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(
            "fluss.proto was not compiled; grpcio-tools and mypy-protobuf of the development "
            f"environment are needed: {done.stderr.strip()}"
        )
    made = folder / PROTO.parent.relative_to(SOURCE_ROOT)
    return {name: (made / name).read_bytes() for name in OUTPUTS}


def minimum_runtime(generated: str) -> tuple[int, int, int]:
    """Return the oldest protobuf runtime that accepts this generated module."""
    stamp = _RUNTIME_STAMP.search(generated)
    if stamp is None:
        raise ValueError("the generated module names no protobuf version")
    return int(stamp[1]), int(stamp[2]), int(stamp[3])


def main(arguments: list[str] | None = None) -> int:
    """Write the generated files, or with --check report the stale ones; return the exit code."""
    parser = argparse.ArgumentParser(prog="fluss_client.wire.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    check = bool(parser.parse_args(arguments).check)
    with tempfile.TemporaryDirectory() as folder:
        made = compile_into(Path(folder))
    stale = []
    for name, content in made.items():
        target = PROTO.with_name(name)
        if target.exists() and target.read_bytes() == content:
            continue
        stale.append(name)
        if not check:
            target.write_bytes(content)
    if check and stale:
        print(
            f"fluss.proto no longer matches {' and '.join(stale)}: "
            "run 'python -m fluss_client.wire.generate'.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
