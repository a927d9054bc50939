"""Put the jars of the Iceberg plugin into a folder, each held to its pinned checksum."""

import shutil
import sys
from pathlib import Path

from fluss_client.testing.artifacts import ensure_jars
from fluss_client.testing.jars import ICEBERG_JARS
from fluss_client.testing.java import find_java

target = Path(sys.argv[1])
target.mkdir(parents=True)
for jar in ensure_jars(ICEBERG_JARS, find_java()):
    shutil.copy(jar, target)
