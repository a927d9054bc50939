"""What spark-submit needs on this machine: its launcher, a Java, and our own packages as a zip.

Nothing here imports pyspark.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import sys
import zipfile
from pathlib import Path

from fluss_client.testing import find_java
from fluss_orchestrate.core.errors import SparkSetupError

OWN_PACKAGES = ("fluss_client", "fluss_orchestrate")
OWN_MODULES = ("pyspark_fluss.py",)
MASTER_TIMEOUT_S = 10.0
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def find_spark_submit(given: str | None = None) -> str:
    """Return the launcher: the given one, that of SPARK_HOME, of this Python, or on the PATH."""
    name = given or "spark-submit"
    if given is None:
        for folder in _bin_folders():
            if os.access(folder / name, os.X_OK):
                return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise SparkSetupError(
            f"there is no {name} on this machine: install it with  pip install "
            "'fluss-orchestrate[spark]', set SPARK_HOME, or say where it is"
        )
    return found


def _bin_folders() -> list[Path]:
    folders = []
    home = os.environ.get("SPARK_HOME", "")
    if home:
        folders.append(Path(home) / "bin")
    folders.append(Path(sys.executable).parent)
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin:
        folders.append(Path(spec.origin).parent / "bin")
    return folders


def java_home() -> str:
    """Return a Java that can run Spark.

    Raises:
        JavaNotFoundError: There is none; the message says what to install.
    """
    return str(find_java().home)


def check_pyspark() -> None:
    """Refuse a pyspark folder that pyspark-client has overwritten in part."""
    versions = {}
    for name in ("pyspark", "pyspark-client"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if len(versions) == 2:
        raise SparkSetupError(
            f"pyspark {versions['pyspark']} and pyspark-client {versions['pyspark-client']} are "
            "installed into the same folder and overwrite each other: run  pip uninstall -y "
            "pyspark-client pyspark && pip install pyspark  (the Airflow Spark provider brings "
            "pyspark-client; exclude it)"
        )


def check_master(master: str) -> None:
    """Raise if no process listens at a standalone master; Spark would need a minute to find out.

    Of several masters, one is enough.
    """
    if not master.startswith("spark://"):
        return
    problems = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdigit():
            raise SparkSetupError(
                f"{master} is no address of a Spark master: write spark://host:7077"
            )
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_TIMEOUT_S).close()
            return
        except OSError as error:
            problems.append(f"{address}: {error.strerror or error}")
    raise SparkSetupError(
        f"no Spark master answers at {master} ({'; '.join(problems)}): start it, or correct the "
        "address"
    )


def zip_packages(folder: Path) -> Path:
    """Write our packages as one zip into `folder`, for `--py-files`.

    Equal sources give equal bytes.
    """
    root = Path(__file__).parents[3]
    target = folder / "fluss-orchestrate.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _own_files(root):
            entry = zipfile.ZipInfo(str(path.relative_to(root)), _ZIP_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return target


def _own_files(root: Path) -> list[Path]:
    files = [root / name for name in OWN_MODULES if (root / name).exists()]
    for package in OWN_PACKAGES:
        files += (path for path in sorted((root / package).rglob("*")) if _is_source(path))
    return files


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts
