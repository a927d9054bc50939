"""Fetching jars by their Maven coordinates, with tools that know where such jars live.

pip's pyspark ships Apache Ivy, which needs only a Java; where pyspark is missing, `mvn` does it.
No address is written here: both tools bring their own. Neither the jars' dependencies nor their
POM files are wanted (the POM of `fluss-lake-iceberg` names a parent that was never published).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from fluss_client.testing.errors import ArtifactError
from fluss_client.testing.jars import Jar
from fluss_client.testing.java import JavaRuntime

FETCH_DEADLINE_S = 1800.0
_POLL_S = 0.1
_CONNECT_TIMEOUT_MS = 15_000
_READ_TIMEOUT_MS = 60_000

_IVY_SETTINGS = f"""<ivysettings>
  <settings defaultResolver="public"/>
  <timeout-constraints>
    <timeout-constraint name="bounded" connectionTimeout="{_CONNECT_TIMEOUT_MS}"
                        readTimeout="{_READ_TIMEOUT_MS}"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="public" m2compatible="true" usepoms="false" timeoutConstraint="bounded"/>
  </resolvers>
</ivysettings>
"""
# What the two tools print when the other side could not be reached at all.
_UNREACHABLE = re.compile(
    r"(UnknownHostException|ConnectException|Connection refused|Unknown host|timed out"
    r"|Network is unreachable|Host name may not be resolved|Temporary failure in name resolution"
    r"|NoRouteToHost|PKIX path building failed|SSLHandshakeException)",
)


def fetch(
    jars: Sequence[Jar], folder: Path, java: JavaRuntime, on_bytes: Callable[[int], None]
) -> None:
    """Bring `jars` into `folder`, named `Jar.file_name`; `on_bytes` hears how far it is.

    Raises `ArtifactError`. Says nothing about the content: the caller checks that.
    """
    ivy = _find_ivy()
    mvn = shutil.which("mvn")
    if ivy is not None:
        command = _ivy_command(ivy, jars, folder, java)
    elif mvn is not None:
        command = _mvn_command(mvn, jars, folder)
    else:
        raise ArtifactError(
            f"{', '.join(map(str, jars))} must be fetched, and nothing here can do it:"
            " run: pip install 'fluss-orchestrate[spark]' (its pyspark holds Ivy), or install Maven"
        )
    output = _run(command, folder, java, on_bytes)
    missing = [jar for jar in jars if not (folder / jar.file_name).is_file()]
    if missing:
        raise ArtifactError(_explain(missing, output))


def _find_ivy() -> Path | None:
    # find_spec does not run pyspark's own code, which takes a second.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        return None
    return next(iter(sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))), None)


def _ivy_command(ivy: Path, jars: Sequence[Jar], folder: Path, java: JavaRuntime) -> list[str]:
    wanted = "\n".join(
        f'    <dependency org="{jar.group}" name="{jar.name}" rev="{jar.version}"'
        ' conf="default->default" transitive="false"/>'
        for jar in jars
    )
    description = folder / "ivy.xml"
    description.write_text(
        '<ivy-module version="2.0">\n  <info organisation="local" module="fetch"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{wanted}\n  </dependencies>\n</ivy-module>\n"
    )
    settings = folder / "ivysettings.xml"
    settings.write_text(_IVY_SETTINGS)
    return java.command(
        "-Xmx256m",
        *_proxy_options(),
        f"-Divy.default.ivy.user.dir={folder / 'home'}",
        "-jar",
        str(ivy),
        *("-settings", str(settings), "-cache", str(folder / "cache"), "-ivy", str(description)),
        *("-confs", "default", "-types", "jar"),
        *("-retrieve", str(folder / "[artifact]-[revision].[ext]")),
    )


def _mvn_command(mvn: str, jars: Sequence[Jar], folder: Path) -> list[str]:
    wanted = "\n".join(
        f"    <dependency><groupId>{jar.group}</groupId><artifactId>{jar.name}</artifactId>"
        f"<version>{jar.version}</version><exclusions><exclusion><groupId>*</groupId>"
        "<artifactId>*</artifactId></exclusion></exclusions></dependency>"
        for jar in jars
    )
    project = folder / "pom.xml"
    project.write_text(
        "<project>\n  <modelVersion>4.0.0</modelVersion>\n  <groupId>local</groupId>\n"
        "  <artifactId>fetch</artifactId>\n  <version>1</version>\n"
        f"  <dependencies>\n{wanted}\n  </dependencies>\n</project>\n"
    )
    return [
        *(mvn, "--batch-mode", "-f", str(project), "dependency:copy-dependencies"),
        *("-DexcludeTransitive=true", f"-DoutputDirectory={folder}"),
    ]


def _proxy_options() -> list[str]:
    """Java does not read the proxy variables that every other tool reads."""
    options = []
    for scheme in ("http", "https"):
        variable = f"{scheme}_proxy"
        value = os.environ.get(variable) or os.environ.get(variable.upper())
        parts = urlsplit(value if value and "://" in value else f"//{value or ''}")
        if parts.hostname:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={port}"]
    return options


def _run(
    command: list[str], folder: Path, java: JavaRuntime, on_bytes: Callable[[int], None]
) -> str:
    log = folder / "fetch.log"
    environment = {**os.environ, "JAVA_HOME": str(java.home)}
    give_up_at = time.monotonic() + FETCH_DEADLINE_S
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            while process.poll() is None:
                if time.monotonic() > give_up_at:
                    break
                on_bytes(_bytes_so_far(folder))
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    return log.read_text(errors="replace")


def _bytes_so_far(folder: Path) -> int:
    """The size of the jars and parts of jars in `folder`, each counted once."""
    sizes: dict[str, int] = {}
    for path in folder.rglob("*.jar*"):
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            continue
        name = path.name.split(".jar")[0]
        sizes[name] = max(size, sizes.get(name, 0))
    return sum(sizes.values())


def _explain(missing: Sequence[Jar], output: str) -> str:
    names = ", ".join(map(str, missing))
    unreachable = _UNREACHABLE.search(output)
    if unreachable:
        return (
            f"{names} must be fetched once and the network does not answer"
            f" ({unreachable.group(1)}): connect and run this again; later starts need no network"
        )
    return f"{names} could not be fetched: {_last_words(output)}"


def _last_words(output: str) -> str:
    lines = [line.strip(" \t:") for line in output.splitlines()]
    telling = [line for line in lines if re.search(r"not found|ERROR|error|denied", line)]
    return (telling or [line for line in lines if line] or ["the tool said nothing"])[-1]
