"""The configuration files and the command line of each server."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from fluss_client.testing.java import JavaRuntime
from fluss_client.testing.services import (
    CATALOG,
    HOST,
    LISTENER,
    SERVICES,
    endpoint,
    server_values,
    service_names,
    storage_of,
    warehouse_of,
    write_service,
)
from fluss_client.testing.state import REST_LAKE, TABLET_HEAP_MIN_MB, ClusterState, Settings

ZOOKEEPER = "zookeeper"
COORDINATOR = "coordinator"
LAKE_CATALOG = "fluss-iceberg-catalog"
_INTERNAL, _PLAIN, _SASL, _CLIENT = "INTERNAL", "FLUSS", "SASL", "CLIENT"

_MAIN = {
    ZOOKEEPER: (
        "org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.server.quorum.QuorumPeerMain"
    ),
    COORDINATOR: "org.apache.fluss.server.coordinator.CoordinatorServer",
}
_TABLET_MAIN = "org.apache.fluss.server.tablet.TabletServer"
_SMALL_JVM = ("-Xms64m", "-XX:+UseSerialGC")
_JVM_OPTIONS = {
    ZOOKEEPER: ("-Xmx512m", *_SMALL_JVM),
    COORDINATOR: ("-Xmx1g", *_SMALL_JVM),
}

# GlobalConfiguration logs only warnings here, because Fluss logs its configuration with passwords.
_LOG4J = """status = warn
logger.configuration.name = org.apache.fluss.config.GlobalConfiguration
logger.configuration.level = warn
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss,SSS}} %-5p %c{{1}} [%t] %m%n%throwable
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 64MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


def tablet_name(number: int) -> str:
    """Return the name of the tablet server with that id; ids start at 1."""
    return f"tablet-{number}"


def server_names(settings: Settings) -> list[str]:
    """Return all servers in the order of their start; they stop in reverse order."""
    tablets = (tablet_name(n + 1) for n in range(settings.tablet_servers))
    return [*service_names(settings), ZOOKEEPER, COORDINATOR, *tablets]


def listeners_of(name: str, sasl: bool) -> list[str]:
    """Return the listeners of a server; each needs a port."""
    if name in SERVICES:
        return [LISTENER]
    if name == ZOOKEEPER:
        return [_CLIENT]
    return [_INTERNAL, _PLAIN, *([_SASL] if sasl else [])]


class Layout:
    """The paths in the directory of a cluster."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.remote = directory / "remote"
        self.lake_database = directory / "lake" / "iceberg.db"
        self.lake_warehouse = directory / "lake" / "warehouse"

    def config(self, name: str) -> Path:
        """Return the folder of a server's configuration."""
        return self.directory / "conf" / name

    def data(self, name: str) -> Path:
        """Return the folder of a server's data."""
        return self.directory / "data" / name

    def work(self, name: str) -> Path:
        """Return the working directory of a server, where it looks for plugins."""
        return self.directory / "work" / name

    def scratch(self, name: str) -> Path:
        """Return the temporary folder of a server; a killed one leaves 20 MB of libraries there."""
        return self.directory / "tmp" / name

    def log(self, name: str) -> Path:
        """Return the log file of a server; a service has none beside what it prints."""
        if name in SERVICES:
            return self.output(name)
        return self.directory / "logs" / f"{name}.log"

    def output(self, name: str) -> Path:
        """Return the file with what the Java of a server prints, such as why it did not start."""
        return self.directory / "logs" / f"{name}.out"


def write_config(
    layout: Layout, state: ClusterState, name: str, plugins: Mapping[str, Sequence[Path]]
) -> None:
    """Write all configuration files of server `name`.

    Args:
        layout: The paths of the cluster.
        state: Its settings and ports.
        name: The server.
        plugins: The jars of each plugin of Fluss.
    """
    if name in SERVICES:
        for folder in (layout.work(name), layout.log(name).parent):
            folder.mkdir(parents=True, exist_ok=True)
        write_service(state, name, layout.config(name), layout.data(name))
        return
    shutil.rmtree(layout.scratch(name), ignore_errors=True)
    plugin_folder = layout.work(name) / "plugins"
    folders = [layout.config(name), layout.data(name), layout.scratch(name), plugin_folder]
    for folder in [*folders, layout.log(name).parent, layout.remote]:
        folder.mkdir(parents=True, exist_ok=True)
    folder = layout.config(name)
    _write_private(folder / "log4j2.properties", _LOG4J.format(log=layout.log(name)))
    if name == ZOOKEEPER:
        values = {
            "dataDir": str(layout.data(name)),
            "clientPort": str(state.servers[name].ports[_CLIENT]),
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
            "tickTime": "1000",
            "maxSessionTimeout": "120000",
            "maxClientCnxns": "0",
            "autopurge.snapRetainCount": "3",
            "autopurge.purgeInterval": "1",
        }
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        _write_private(folder / "zookeeper.properties", text)
        return
    values = _server_values(layout, state, name)
    text = "".join(f"{key}: {value}\n" for key, value in values.items())
    _write_private(folder / "server.yaml", text)
    for plugin, jars in plugins.items():
        _link_plugins(plugin_folder / plugin, jars)
    if state.settings.lake == "iceberg":
        layout.lake_warehouse.mkdir(parents=True, exist_ok=True)
        _set_wal_mode(layout.lake_database)


def _set_wal_mode(database: Path) -> None:
    """Set the catalog to WAL mode, which is stored in the file.

    A server may leave a statement open, which holds a read lock. In SQLite's default mode nobody
    could write to the catalog after that.
    """
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def _server_values(layout: Layout, state: ClusterState, name: str) -> dict[str, str]:
    ports = state.servers[name].ports
    listeners = ",".join(
        f"{listener}://{HOST}:{ports[listener]}"
        for listener in listeners_of(name, state.settings.sasl)
    )
    values = {
        "zookeeper.address": f"{HOST}:{state.servers[ZOOKEEPER].ports[_CLIENT]}",
        "zookeeper.path.root": "/fluss",
        # A killed server stays registered for this time, and its successor waits for that.
        "zookeeper.client.session-timeout": "6s",
        "data.dir": str(layout.data(name)),
        "remote.data.dir": f"file://{layout.remote}",
        "bind.listeners": listeners,
        "advertised.listeners": listeners,
        "internal.listener.name": _INTERNAL,
        "default.replication.factor": "1",
    }
    if name != COORDINATOR:
        values["tablet-server.id"] = name.rpartition("-")[2]
    if state.settings.sasl:
        accounts = " ".join(f'user_{user}="{word}"' for user, word in state.users.items())
        values |= {
            "security.protocol.map": f"{_PLAIN}:PLAINTEXT,{_INTERNAL}:PLAINTEXT,{_SASL}:sasl",
            "security.sasl.enabled.mechanisms": "PLAIN",
            "security.sasl.plain.jaas.config": (
                f"org.apache.fluss.security.auth.sasl.plain.PlainLoginModule required {accounts};"
            ),
            "super.users": "User:admin",
        }
    values |= server_values(state)
    if state.settings.lake == REST_LAKE:
        values |= {
            "datalake.format": "iceberg",
            "datalake.iceberg.type": "rest",
            "datalake.iceberg.uri": endpoint(state, CATALOG),
            "datalake.iceberg.warehouse": warehouse_of(state, layout.data(CATALOG)),
        }
    elif state.settings.lake is not None:
        values |= {
            "datalake.format": state.settings.lake,
            "datalake.iceberg.type": "jdbc",
            "datalake.iceberg.uri": f"jdbc:sqlite:{layout.lake_database}",
            "datalake.iceberg.jdbc.schema-version": "V1",
            "datalake.iceberg.warehouse": f"file://{layout.lake_warehouse}",
        }
    return {**values, **state.settings.config}


def _write_private(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def _link_plugins(folder: Path, plugins: Sequence[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for jar in plugins:
        os.symlink(jar, folder / jar.name)


def lake_properties(layout: Layout, state: ClusterState) -> dict[str, str]:
    """Return the properties with which PyIceberg's `load_catalog` opens the servers' catalog."""
    if state.settings.lake == REST_LAKE:
        return {
            "name": LAKE_CATALOG,
            "type": "rest",
            "uri": endpoint(state, CATALOG),
            "warehouse": warehouse_of(state, layout.data(CATALOG)),
            **(storage_of(state) if state.settings.remote else {}),
        }
    return {
        "name": LAKE_CATALOG,
        "type": "sql",
        "uri": f"sqlite:///{layout.lake_database}",
        "warehouse": f"file://{layout.lake_warehouse}",
    }


def command_line(
    layout: Layout, name: str, java: JavaRuntime, class_path: Sequence[Path], tablet_heap: str
) -> list[str]:
    """Return the command that runs server `name`."""
    folder = layout.config(name)
    arguments = (
        [str(folder / "zookeeper.properties")]
        if name == ZOOKEEPER
        else ["--configDir", str(folder)]
    )
    return java.command(
        *_JVM_OPTIONS.get(name, (f"-Xms{TABLET_HEAP_MIN_MB}m", f"-Xmx{tablet_heap}")),
        "-XX:+ExitOnOutOfMemoryError",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        f"-Djava.io.tmpdir={layout.scratch(name)}",
        f"-Dlog4j.configurationFile={folder / 'log4j2.properties'}",
        *("-cp", os.pathsep.join(map(str, class_path))),
        _MAIN.get(name, _TABLET_MAIN),
        *arguments,
    )
