"""Runs a Java program of `java/` with one of the official client jars on its class path."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from fluss_client.testing.artifacts import ensure_jars
from fluss_client.testing.errors import ArtifactError, JavaNotFoundError
from fluss_client.testing.jars import SERVER_JARS
from fluss_client.testing.java import find_java
from tests.interop.java_peer import CLIENT_JARS
from tests.needs import unavailable

FOLDER = Path(__file__).parent / "java"
OPENED = ["--add-opens=java.base/java.nio=ALL-UNNAMED"]


def output_of(program: str, version: str, given: str = "", *arguments: str) -> list[str]:
    """Run a program with `given` as its input, and return the lines that it prints."""
    try:
        java = find_java()
        jars = [*ensure_jars([CLIENT_JARS[version]], java), *ensure_jars(SERVER_JARS[1:], java)]
    except (JavaNotFoundError, ArtifactError) as error:
        unavailable(error.message)
    path = os.pathsep.join(map(str, jars))
    command = java.command("-Xmx256m", *OPENED, "-cp", path, str(FOLDER / program), *arguments)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()
