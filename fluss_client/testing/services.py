"""The servers beside Fluss: an S3 store, its token service, and an Iceberg REST catalog.

The store is S3Proxy on a folder; it checks signatures. The token service is a stand-in
(`token_service.py`). The catalog is Iceberg's own REST catalog on SQLite, as its project tests
clients with; Jetty's XML configuration starts it, because its own main class listens on all
interfaces. Everything listens on the loopback interface only.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from fluss_client.testing.java import JavaRuntime
from fluss_client.testing.state import REST_LAKE, ClusterState, Settings
from fluss_client.testing.user_dirs import write_atomically

HOST = "127.0.0.1"
STORE = "s3"
TOKENS = "tokens"
CATALOG = "catalog"
SERVICES = (STORE, TOKENS, CATALOG)
LISTENER = "HTTP"
_SCHEME = "http"
BUCKET = "fluss"
REGION = "us-east-1"
ACCESS_KEY = "fluss"
TOKEN_LIFE_S = 3600.0
_SMALL_JVM = ("-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def service_names(settings: Settings) -> list[str]:
    """Return the services that a cluster needs, in the order of their start."""
    names = [STORE, TOKENS] if settings.remote else []
    return [*names, CATALOG] if settings.lake == REST_LAKE else names


def choose_secret(state: ClusterState) -> None:
    """Choose the secret key of the store, if it has none yet."""
    if state.settings.remote and not state.storage_secret:
        state.storage_secret = secrets.token_hex(20)


def endpoint(state: ClusterState, name: str) -> str:
    """Return the address of a service."""
    return f"{_SCHEME}://{HOST}:{state.servers[name].ports[LISTENER]}"


def storage_of(state: ClusterState) -> dict[str, str]:
    """Return the properties with which files in the store are opened, the secret included."""
    return {
        "s3.endpoint": endpoint(state, STORE),
        "s3.region": REGION,
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": state.storage_secret,
    }


def server_values(state: ClusterState) -> dict[str, str]:
    """Return what the servers of Fluss must know of the store."""
    if not state.settings.remote:
        return {}
    return {
        "remote.data.dir": f"s3://{BUCKET}/remote",
        "s3.endpoint": endpoint(state, STORE),
        "s3.region": REGION,
        "s3.access-key": ACCESS_KEY,
        "s3.secret-key": state.storage_secret,
        "s3.path-style-access": "true",
        "s3.assumed.role.sts.endpoint": endpoint(state, TOKENS),
    }


def write_service(state: ClusterState, name: str, config: Path, data: Path) -> None:
    """Write the configuration of a service."""
    for folder in (config, data):
        folder.mkdir(parents=True, exist_ok=True)
    if name == STORE:
        (data / BUCKET).mkdir(exist_ok=True)
        _write_properties(
            config / "s3proxy.conf",
            {
                "s3proxy.endpoint": endpoint(state, STORE),
                "s3proxy.authorization": "aws-v2-or-v4",
                "s3proxy.identity": ACCESS_KEY,
                "s3proxy.credential": state.storage_secret,
                "s3proxy.ignore-unknown-headers": "true",
                "jclouds.provider": "filesystem-nio2",
                "jclouds.identity": "local",
                "jclouds.credential": "local",
                "jclouds.filesystem.basedir": str(data),
            },
        )
    elif name == TOKENS:
        set_token_life(state, config, TOKEN_LIFE_S)
    else:
        _write_private(config / "catalog.xml", _catalog_xml(state, data))
        _write_private(config / "core-site.xml", _core_site(state))


def set_token_life(state: ClusterState, config: Path, life_s: float) -> None:
    """Set how long the tokens live that are given from now on."""
    content = {"access_key": ACCESS_KEY, "secret_key": state.storage_secret, "life_s": life_s}
    write_atomically(config / "tokens.json", json.dumps(content).encode(), mode=0o600)


def service_command(
    state: ClusterState, name: str, config: Path, java: JavaRuntime, jars: Sequence[Path]
) -> list[str]:
    """Return the command that runs a service."""
    port = str(state.servers[name].ports[LISTENER])
    if name == TOKENS:
        module = "fluss_client.testing.token_service"
        return [sys.executable, "-m", module, port, str(config / "tokens.json")]
    if name == STORE:
        properties = str(config / "s3proxy.conf")
        return java.command(
            "-Xmx512m", *_SMALL_JVM, "-jar", str(jars[0]), "--properties", properties
        )
    class_path = os.pathsep.join([str(config), *map(str, jars)])
    return java.command(
        *("-Xmx512m", *_SMALL_JVM, "-cp", class_path),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        *("org.eclipse.jetty.xml.XmlConfiguration", str(config / "catalog.xml")),
    )


def _catalog_xml(state: ClusterState, data: Path) -> str:
    values = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{data / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse_of(state, data),
        "clients": "1",  # SQLite takes one writer at a time
    }
    entries = "".join(
        f"<Put name='{escape(key)}'>{escape(value)}</Put>" for key, value in values.items()
    )
    return _CATALOG_XML.format(host=HOST, port=state.servers[CATALOG].ports[LISTENER], map=entries)


def warehouse_of(state: ClusterState, data: Path) -> str:
    """Return where the catalog keeps its tables."""
    if state.settings.remote:
        return f"s3://{BUCKET}/warehouse"
    return f"file://{data / 'warehouse'}"


def _core_site(state: ClusterState) -> str:
    if not state.settings.remote:
        return "<configuration/>"
    values = {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint": endpoint(state, STORE),
        "fs.s3a.endpoint.region": REGION,
        "fs.s3a.access.key": ACCESS_KEY,
        "fs.s3a.secret.key": state.storage_secret,
        "fs.s3a.path.style.access": "true",
    }
    entries = "".join(
        f"<property><name>{key}</name><value>{escape(value)}</value></property>"
        for key, value in values.items()
    )
    return f"<configuration>{entries}</configuration>"


_CATALOG_XML = """<?xml version="1.0"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "configure_10_0.dtd">
<Configure id="Server" class="org.eclipse.jetty.server.Server">
  <Call name="addConnector"><Arg>
    <New class="org.eclipse.jetty.server.ServerConnector">
      <Arg name="server"><Ref refid="Server"/></Arg>
      <Set name="host">{host}</Set>
      <Set name="port">{port}</Set>
    </New>
  </Arg></Call>
  <New id="properties" class="java.util.HashMap">{map}</New>
  <New id="hadoop" class="org.apache.hadoop.conf.Configuration"/>
  <Call id="catalog" class="org.apache.iceberg.CatalogUtil" name="buildIcebergCatalog">
    <Arg>catalog</Arg><Arg><Ref refid="properties"/></Arg><Arg><Ref refid="hadoop"/></Arg>
  </Call>
  <New id="servlet" class="org.apache.iceberg.rest.RESTCatalogServlet"><Arg>
    <New class="org.apache.iceberg.rest.RESTCatalogAdapter"><Arg><Ref refid="catalog"/></Arg></New>
  </Arg></New>
  <Set name="handler">
    <New id="context" class="org.eclipse.jetty.servlet.ServletContextHandler">
      <Set name="contextPath">/</Set>
      <Call name="addServlet">
        <Arg><New class="org.eclipse.jetty.servlet.ServletHolder">
          <Set name="servlet"><Ref refid="servlet"/></Set>
        </New></Arg>
        <Arg>/*</Arg>
      </Call>
    </New>
  </Set>
</Configure>
"""


def _write_properties(path: Path, values: dict[str, str]) -> None:
    _write_private(path, "".join(f"{key}={value}\n" for key, value in values.items()))


def _write_private(path: Path, text: str) -> None:
    write_atomically(path, text.encode(), mode=0o600)
