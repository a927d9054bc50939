"""The per-user cache of jars: each is fetched once and its checksum is compared on every use.

Two tools can fetch a jar by its Maven coordinates: Apache Ivy, which pip's pyspark contains and
which needs only a Java, and `mvn` if pyspark is missing. Both know the repository; no address is
written here. The dependencies of the jars are not fetched.

While a download runs, standard error shows a progress bar on a terminal, else some lines.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from fluss_client.testing.errors import ArtifactError
from fluss_client.testing.jars import Jar
from fluss_client.testing.java import JavaRuntime
from fluss_client.testing.user_dirs import cache_dir, file_lock

FETCH_DEADLINE_S = 1800.0
_POLL_S = 0.1
# What the tools print if the repository could not be reached.
_UNREACHABLE = re.compile(
    r"UnknownHostException|ConnectException|Connection refused|Unknown host|timed out"
    r"|Network is unreachable|Host name may not be resolved|Temporary failure in name resolution"
    r"|NoRouteToHost|PKIX path building failed|SSLHandshakeException"
)
_LINE_EVERY_PERCENT = 25
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


def jar_cache_dir() -> Path:
    """Return the directory of the cached jars."""
    return cache_dir() / "jars"


def ensure_jars(jars: Sequence[Jar], java: JavaRuntime) -> list[Path]:
    """Return the paths of `jars` in the cache; fetch those that are missing or damaged.

    No network is needed if the cache has them all.

    Raises:
        ArtifactError: A jar could not be fetched, or has another content than expected.
    """
    folder = jar_cache_dir()
    try:
        if any(_fault(folder / jar.file_name, jar) for jar in jars):
            # One process fetches; the others wait for the lock and then find the jars.
            with file_lock(folder / ".lock", FETCH_DEADLINE_S, "fetching jars"):
                _fetch_missing(jars, folder, java)
    except OSError as error:
        raise ArtifactError(
            f"the jar cache {folder} cannot be used ({error.strerror or error}):"
            " make it writable or set XDG_CACHE_HOME to another directory"
        ) from error
    return [folder / jar.file_name for jar in jars]


def _fetch_missing(jars: Sequence[Jar], folder: Path, java: JavaRuntime) -> None:
    faults = {jar: _fault(folder / jar.file_name, jar) for jar in jars}
    wanted = [jar for jar, fault in faults.items() if fault]
    if not wanted:
        return
    corrupt = [str(folder / jar.file_name) for jar in wanted if faults[jar] == "corrupt"]
    staging = Path(tempfile.mkdtemp(dir=folder, prefix=".fetch-"))
    try:
        total = sum(jar.size_bytes for jar in wanted)
        title = f"Fetching {len(wanted)} jar{'s' if len(wanted) > 1 else ''} for the local cluster"
        with download_progress(title, total) as on_bytes:
            fetch(wanted, staging, java, on_bytes)
            on_bytes(total)
        for jar in wanted:
            _install(staging / jar.file_name, folder, jar)
    except ArtifactError as error:
        if corrupt:
            raise ArtifactError(
                f"the cached {', '.join(corrupt)} is corrupt, and {error.message}"
            ) from error
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _install(fetched: Path, folder: Path, jar: Jar) -> None:
    fault = _fault(fetched, jar)
    if fault:
        raise ArtifactError(
            f"{jar} as fetched is not the jar that this version expects (its SHA-256 is"
            f" {_sha256(fetched)}, expected {jar.sha256}): a proxy may have changed it; try again"
        )
    os.replace(fetched, folder / jar.file_name)


def _fault(path: Path, jar: Jar) -> str:
    """Return "missing" or "corrupt", or an empty text if the jar is complete."""
    try:
        if path.stat().st_size != jar.size_bytes:
            return "corrupt"
    except FileNotFoundError:
        return "missing"
    return "" if _sha256(path) == jar.sha256 else "corrupt"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_ivy() -> Path | None:
    """Return the Ivy jar among pyspark's files. pyspark is not imported: that takes a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        return None
    return next(iter(sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))), None)


def ivy_command(ivy: Path, jars: Sequence[Jar], folder: Path, java: JavaRuntime) -> list[str]:
    """Return the command that fetches `jars` into `folder`, where Ivy keeps its own files too."""
    modules: dict[tuple[str, str, str], list[Jar]] = {}
    for jar in jars:
        modules.setdefault((jar.group, jar.name, jar.version), []).append(jar)
    # Ivy takes a module once, with all of its jars.
    wanted = "\n".join(
        f'    <dependency org="{group}" name="{name}" rev="{version}"'
        f' conf="default->default" transitive="false">{"".join(map(_ivy_artifact, some))}'
        "</dependency>"
        for (group, name, version), some in modules.items()
    )
    description = folder / "ivy.xml"
    description.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '  <info organisation="local" module="fetch"/>\n'
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
        *("-retrieve", str(folder / "[artifact]-[revision](-[classifier]).[ext]")),
    )


def _ivy_artifact(jar: Jar) -> str:
    classifier = f' m:classifier="{jar.classifier}"' if jar.classifier else ""
    return f'<artifact name="{jar.name}" type="jar" ext="jar"{classifier}/>'


def mvn_command(mvn: str, jars: Sequence[Jar], folder: Path) -> list[str]:
    """Return the command that fetches `jars` into `folder`, where Maven keeps its own files too."""
    wanted = "\n".join(
        f"    <dependency><groupId>{jar.group}</groupId><artifactId>{jar.name}</artifactId>"
        f"<version>{jar.version}</version>{_mvn_classifier(jar)}<exclusions><exclusion><groupId>*</groupId>"
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


def _mvn_classifier(jar: Jar) -> str:
    return f"<classifier>{jar.classifier}</classifier>" if jar.classifier else ""


def _put_parent(repository: Path, jar: Jar) -> None:
    """Write an empty parent POM: Maven fetches no jar whose POM names a parent it cannot read."""
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
    """Return the proxy of the environment as Java options; Java does not read those variables."""
    options = []
    for scheme in ("http", "https"):
        variable = f"{scheme}_proxy"
        value = os.environ.get(variable) or os.environ.get(variable.upper())
        parts = urlsplit(value if value and "://" in value else f"//{value or ''}")
        if parts.hostname:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={port}"]
    return options


def fetch(
    jars: Sequence[Jar], folder: Path, java: JavaRuntime, on_bytes: Callable[[int], None]
) -> None:
    """Fetch `jars` into `folder` under `Jar.file_name`; the caller checks their content.

    Args:
        jars: What to fetch.
        folder: An empty directory.
        java: The Java that runs Ivy or Maven.
        on_bytes: Called with the number of bytes so far.

    Raises:
        ArtifactError: A jar could not be fetched.
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
    """Return the size of `jars` so far, also of partial files that the tools keep elsewhere."""
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


@contextmanager
def download_progress(title: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of bytes so far and shows it on standard error."""
    if sys.stderr.isatty():
        try:
            import rich.console
            import rich.progress
        except ImportError:
            pass
        else:
            with rich.progress.Progress(
                rich.progress.TextColumn("{task.description}"),
                rich.progress.BarColumn(),
                rich.progress.DownloadColumn(),
                rich.progress.TransferSpeedColumn(),
                console=rich.console.Console(stderr=True),
                transient=True,
            ) as bar:
                task = bar.add_task(title, total=total_bytes)
                yield lambda so_far: bar.update(task, completed=min(so_far, total_bytes))
            return
    yield _Lines(title, total_bytes).show


class _Lines:
    def __init__(self, title: str, total_bytes: int) -> None:
        self._title = title
        self._total_bytes = max(total_bytes, 1)
        self._next_percent = 0

    def show(self, so_far: int) -> None:
        percent = min(100, so_far * 100 // self._total_bytes)
        if percent >= self._next_percent:
            total_mb = self._total_bytes / 1e6
            print(f"{self._title}: {percent}% of {total_mb:.0f} MB", file=sys.stderr, flush=True)
            self._next_percent = percent - percent % _LINE_EVERY_PERCENT + _LINE_EVERY_PERCENT
