"""Fetching jars, and explaining in a sentence why it did not work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fluss_client.testing.errors import ArtifactError
from fluss_client.testing.fetch_commands import find_ivy, ivy_command, mvn_command
from fluss_client.testing.jars import Jar
from fluss_client.testing.java import JavaRuntime

FETCH_DEADLINE_S = 1800.0
_POLL_S = 0.1
# What the tools print when the other side could not be reached at all.
_UNREACHABLE = re.compile(
    r"UnknownHostException|ConnectException|Connection refused|Unknown host|timed out"
    r"|Network is unreachable|Host name may not be resolved|Temporary failure in name resolution"
    r"|NoRouteToHost|PKIX path building failed|SSLHandshakeException"
)


def fetch(
    jars: Sequence[Jar], folder: Path, java: JavaRuntime, on_bytes: Callable[[int], None]
) -> None:
    """Bring `jars` into `folder`, named `Jar.file_name`; `on_bytes` hears how far it is.

    Raises `ArtifactError`. Says nothing about the content: the caller checks that.
    """
    ivy = find_ivy()
    mvn = shutil.which("mvn")
    if ivy is not None:
        command = ivy_command(ivy, jars, folder, java)
    elif mvn is not None:
        command = mvn_command(mvn, jars, folder)
    else:
        raise ArtifactError(
            f"{_names(jars)} must be fetched, and nothing here can do it:"
            " run: pip install 'fluss-orchestrate[spark]' (its pyspark holds Ivy), or install Maven"
        )
    output = _run(command, folder, java, lambda: on_bytes(_bytes_so_far(folder, jars)))
    missing = [jar for jar in jars if not (folder / jar.file_name).is_file()]
    if missing:
        raise ArtifactError(_explain(missing, output))


def _run(command: list[str], folder: Path, java: JavaRuntime, on_wait: Callable[[], None]) -> str:
    log = folder / "fetch.log"
    environment = {**os.environ, "JAVA_HOME": str(java.home)}
    give_up_at = time.monotonic() + FETCH_DEADLINE_S
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            while process.poll() is None and time.monotonic() < give_up_at:
                on_wait()
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    return log.read_text(errors="replace")


def _bytes_so_far(folder: Path, jars: Sequence[Jar]) -> int:
    """The size of `jars`, or of the parts that are there, wherever a tool keeps them."""
    return sum(
        max((_size(path) for path in folder.rglob(f"{jar.file_name}*")), default=0) for jar in jars
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _explain(missing: Sequence[Jar], output: str) -> str:
    unreachable = _UNREACHABLE.search(output)
    if unreachable:
        return (
            f"{_names(missing)} must be fetched once and the network does not answer"
            f" ({unreachable.group()}): connect and run this again; later starts need no network"
        )
    return f"{_names(missing)} could not be fetched: {_first_complaint(output)}"


def _names(jars: Sequence[Jar]) -> str:
    others = f" and {len(jars) - 1} more" if len(jars) > 1 else ""
    return f"{jars[0]}{others}"


def _first_complaint(output: str) -> str:
    lines = [line.strip(" \t:") for line in output.splitlines()]
    telling = [line for line in lines if re.search(r"not found|ERROR|[Ee]rror:|denied", line)]
    return (telling or [line for line in lines if line] or ["the tool said nothing"])[0]
