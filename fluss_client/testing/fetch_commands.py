"""The two tools that can fetch a jar by its coordinates, and how each is asked.

pip's pyspark ships Apache Ivy, which needs only a Java; where pyspark is missing, `mvn` does it.
No address is written here: both bring their own. The jars' dependencies are not wanted.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from fluss_client.testing.jars import Jar
from fluss_client.testing.java import JavaRuntime

_CONNECT_TIMEOUT_MS = 15_000
_READ_TIMEOUT_MS = 60_000

# POM files are not read (`usepoms`): one of them names a parent that was never published.
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


def find_ivy() -> Path | None:
    """The Ivy jar among pyspark's files; pyspark itself is not imported, which takes a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        return None
    return next(iter(sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))), None)


def ivy_command(ivy: Path, jars: Sequence[Jar], folder: Path, java: JavaRuntime) -> list[str]:
    """A command that brings `jars` into `folder`; Ivy's own files go there too."""
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


def mvn_command(mvn: str, jars: Sequence[Jar], folder: Path) -> list[str]:
    """A command that brings `jars` into `folder`; Maven's own files go there too."""
    wanted = "\n".join(
        f"    <dependency><groupId>{jar.group}</groupId><artifactId>{jar.name}</artifactId>"
        f"<version>{jar.version}</version><exclusions><exclusion><groupId>*</groupId>"
        "<artifactId>*</artifactId></exclusion></exclusions></dependency>"
        for jar in jars
    )
    project = folder / "pom.xml"
    project.write_text(
        f"<project>\n{_pom_head('local', 'fetch', '1')}"
        f"  <dependencies>\n{wanted}\n  </dependencies>\n</project>\n"
    )
    repository = folder / "repository"
    for jar in jars:
        if jar.unpublished_parent:
            _put_parent(repository, jar)
    return [
        *(mvn, "--batch-mode", "-f", str(project), f"-Dmaven.repo.local={repository}"),
        *("dependency:copy-dependencies", f"-DoutputDirectory={folder}"),
    ]


def _put_parent(repository: Path, jar: Jar) -> None:
    """An empty stand-in: Maven reads no description without its parent, and so gets no jar."""
    name = jar.unpublished_parent
    folder = repository.joinpath(*jar.group.split("."), name, jar.version)
    folder.mkdir(parents=True)
    head = _pom_head(jar.group, name, jar.version)
    (folder / f"{name}-{jar.version}.pom").write_text(
        f"<project>\n{head}  <packaging>pom</packaging>\n</project>\n"
    )


def _pom_head(group: str, name: str, version: str) -> str:
    return (
        f"  <modelVersion>4.0.0</modelVersion>\n  <groupId>{group}</groupId>\n"
        f"  <artifactId>{name}</artifactId>\n  <version>{version}</version>\n"
    )


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
