"""Fluss's official tiering service on Flink in one Java process, without a cluster of Flink.

`FlussLakeTieringEntrypoint` runs its job in the process itself if nobody submits it to a cluster.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fluss_client.testing.artifacts import ensure_jars
from fluss_client.testing.errors import ArtifactError, JavaNotFoundError
from fluss_client.testing.jars import FLUSS_VERSION, ICEBERG_JARS, SERVER_JARS, Jar
from fluss_client.testing.java import find_java
from tests.needs import unavailable
from tests.waiting import scaled

MAIN = "org.apache.fluss.flink.tiering.FlussLakeTieringEntrypoint"
POLL_INTERVAL = "200ms"
"""How often the service asks for a table; by default, every 30 seconds."""
END_S = 30.0

FLINK_JARS = (
    Jar(
        "org.apache.fluss",
        "fluss-flink-1.20",
        FLUSS_VERSION,
        69388187,
        "ed7ca16384644eb1da051fa658a2181df3f16c9de869f9edbbe9b4b771e56691",
    ),
    Jar(
        "org.apache.fluss",
        "fluss-flink-tiering",
        FLUSS_VERSION,
        10122,
        "54c2f4125a74bacb304d182760017502225b283b3d7364baa1c783b8f014cb4e",
    ),
    Jar(
        "com.esotericsoftware.kryo",
        "kryo",
        "2.24.0",
        339283,
        "7e56b32c635058f9aa2820f88919ab702d029cbcd15285da9992e36cc0ae52f2",
    ),
    Jar(
        "commons-cli",
        "commons-cli",
        "1.5.0",
        58284,
        "bc8bb01fc0fad250385706e20f927ddcff6173f6339b387dc879237752567ac6",
    ),
    Jar(
        "commons-io",
        "commons-io",
        "2.15.1",
        501218,
        "a58af12ee1b68cfd2ebb0c27caef164f084381a00ec81a48cc275fd7ea54e154",
    ),
    Jar(
        "org.apache.commons",
        "commons-lang3",
        "3.12.0",
        587402,
        "d919d904486c037f8d193412da0c92e22a9fa24230b9d67a57855c5c31c7e94e",
    ),
    Jar(
        "org.apache.commons",
        "commons-text",
        "1.10.0",
        238400,
        "770cd903fa7b604d1f7ef7ba17f84108667294b2b478be8ed1af3bffb4ae0018",
    ),
    Jar(
        "org.apache.flink",
        "flink-annotations",
        "1.20.3",
        18969,
        "fa298363048d7687f47d69f8572e8daabcce9cf021ecff8bdc642a75ff1a83a8",
    ),
    Jar(
        "org.apache.flink",
        "flink-clients",
        "1.20.3",
        240534,
        "c9b74d6956994c0d5c7bafa586769a2e85afd5a2997661d344041681292b6d0d",
    ),
    Jar(
        "org.apache.flink",
        "flink-connector-base",
        "1.20.3",
        142983,
        "e95179da8f560204ae21b1f709497a0928348f8655a23b1e80d458670dc4d4ce",
    ),
    Jar(
        "org.apache.flink",
        "flink-connector-datagen",
        "1.20.3",
        22920,
        "2bf951e84be9c1b82eebddf18e37ca56f97c3a8ffa24bc38060a417e0c0a9c92",
    ),
    Jar(
        "org.apache.flink",
        "flink-core",
        "1.20.3",
        1915449,
        "29459f3f6ee81230e2436eeb636daf3c88841546ac11b1c13af14839a7eb605c",
    ),
    Jar(
        "org.apache.flink",
        "flink-core-api",
        "1.20.3",
        71834,
        "2cfe1b3a51ec9d50a4d9b61f017ddb3b4fc4bf09eff2997a5c773fa8972e4055",
    ),
    Jar(
        "org.apache.flink",
        "flink-hadoop-fs",
        "1.20.3",
        42048,
        "0c0926936c54c8c738ad29c017be94774c0fcc435b48137eade7571a61fc93f4",
    ),
    Jar(
        "org.apache.flink",
        "flink-java",
        "1.20.3",
        439988,
        "e79e70c820c0a70c81a0758220eff526d9aa10ecc0f4d0998267bb74358c95e6",
    ),
    Jar(
        "org.apache.flink",
        "flink-metrics-core",
        "1.20.3",
        38008,
        "f3ed52c6bb63319e9abed5ccbcda1f55452aca3462864e883089258b65404d1e",
    ),
    Jar(
        "org.apache.flink",
        "flink-optimizer",
        "1.20.3",
        358054,
        "8bb43335774deb1b9372ec01ef76368281158bc1482931fa42e4e67fdff2a82e",
    ),
    Jar(
        "org.apache.flink",
        "flink-queryable-state-client-java",
        "1.20.3",
        84699,
        "94bc03e0cf6ba76a623f28502d73148074ec69dc058e1af2f9442cc0a001b935",
    ),
    Jar(
        "org.apache.flink",
        "flink-rpc-akka-loader",
        "1.20.3",
        19715739,
        "f74a006f964c6f54fc928b3d333fd5bdbb7374300e5a0e8017ad5bc17c90aded",
    ),
    Jar(
        "org.apache.flink",
        "flink-rpc-core",
        "1.20.3",
        56024,
        "b1a64af9d2cb8fe54ccc642485b5bb83bc835e73ae2b8439c916729bf36bc11e",
    ),
    Jar(
        "org.apache.flink",
        "flink-runtime",
        "1.20.3",
        6365518,
        "7e1e6bc5f4fe05f56880f7aeb779ff1f2e60f08efce9c736692937209b85bb42",
    ),
    Jar(
        "org.apache.flink",
        "flink-shaded-asm-9",
        "9.5-17.0",
        296034,
        "a79273d4fbea1683b5fe81bce25d7fe552a542690481132f7ded034a8f00169e",
    ),
    Jar(
        "org.apache.flink",
        "flink-shaded-guava",
        "31.1-jre-17.0",
        3171088,
        "03442ae97c4ca34388568cbce0e67e9911b0137b2b3849dff7a550008d5a4336",
    ),
    Jar(
        "org.apache.flink",
        "flink-shaded-jackson",
        "2.14.2-17.0",
        2887740,
        "37e87311498ae8da80adb2aa09ab6e9739d8611e09868e7220822206c739231e",
    ),
    Jar(
        "org.apache.flink",
        "flink-shaded-netty",
        "4.1.91.Final-17.0",
        4914460,
        "c4d370f1b2bda0b55686fdec840c8a047950b9448f26cd01f1594a3bf0fde75b",
    ),
    Jar(
        "org.apache.flink",
        "flink-shaded-zookeeper-3",
        "3.7.1-17.0",
        11732844,
        "e91cb263c67631a27e7a6cee147b75a9a638f3c52fcd053106fc4584feb6e585",
    ),
    Jar(
        "org.apache.flink",
        "flink-streaming-java",
        "1.20.3",
        1750421,
        "53f12f3fa4504409cb2b74a6ba516b10b06ef7972c6f226e7168e4f58e0df1b5",
    ),
    Jar(
        "org.snakeyaml",
        "snakeyaml-engine",
        "2.6",
        292124,
        "2652199af40c9aa2f1782400d2dfbbf4e5226208c4e05ddd4059c3d6d9cd1505",
    ),
)
"""The service, and what it needs of Flink 1.20."""

LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.file.ref = Console
appender.console.type = Console
appender.console.name = Console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c %m%n%ex
"""


class FlinkService:
    """The tiering service of one cluster, started and stopped as a test needs it."""

    def __init__(self, bootstrap_servers: str, lake: Mapping[str, str], folder: Path) -> None:
        """Fetch what the service needs.

        Args:
            bootstrap_servers: The cluster.
            lake: The properties of its lake, which begin with `datalake.`.
            folder: Where the service logs.
        """
        try:
            java = find_java()
            jars = ensure_jars([*FLINK_JARS, *ICEBERG_JARS, *SERVER_JARS[1:]], java)
        except (JavaNotFoundError, ArtifactError) as error:
            unavailable(error.message)
        logging = folder / "log4j2.properties"
        logging.write_text(LOGGING)
        self.log = folder / "flink.log"
        settings = {
            "fluss.bootstrap.servers": bootstrap_servers,
            "fluss.tiering.poll.table.interval": POLL_INTERVAL,
            "datalake.format": "iceberg",
            **lake,
        }
        self._command = java.command(
            "-Xmx768m",
            f"-Djava.io.tmpdir={folder}",
            *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("nio", "util", "lang")),
            f"-Dlog4j.configurationFile={logging}",
            "-cp",
            os.pathsep.join(map(str, jars)),
            MAIN,
            *(word for name, value in settings.items() for word in (f"--{name}", value)),
        )

    @contextmanager
    def running(self) -> Iterator[Callable[[], None]]:
        """Run the service; what is yielded fails if it has ended by itself."""
        with self.log.open("a") as log:
            process = subprocess.Popen(self._command, stdout=log, stderr=log)

        def check() -> None:
            assert process.poll() is None, self.log.read_text()[-6000:]

        try:
            yield check
        finally:
            process.terminate()
            try:
                process.wait(scaled(END_S))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
