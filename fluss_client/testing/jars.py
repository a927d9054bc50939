"""The jars of a local cluster: their coordinates, sizes and checksums."""

from __future__ import annotations

from dataclasses import dataclass

FLUSS_VERSION = "0.9.1-incubating"


@dataclass(frozen=True)
class Jar:
    """One jar by its Maven coordinates, with its expected size and checksum.

    `unpublished_parent` is a parent that its POM names and that no repository has.
    """

    group: str
    name: str
    version: str
    size_bytes: int
    sha256: str
    unpublished_parent: str = ""

    @property
    def file_name(self) -> str:
        """The file name of the jar in the cache."""
        return f"{self.name}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"


# The server jar contains ZooKeeper, coordinator, tablet server and RocksDB, but of logging only the
# interface: without the three log4j jars its errors would be lost.
SERVER_JARS = (
    Jar(
        "org.apache.fluss",
        "fluss-server",
        FLUSS_VERSION,
        85810597,
        "fdda82aa7cc936086c420090920836066d48d741cf7e0aadde3c0e6f0832a169",
    ),
    Jar(
        "org.apache.logging.log4j",
        "log4j-api",
        "2.17.1",
        301872,
        "b0d8a4c8ab4fb8b1888d0095822703b0e6d4793c419550203da9e69196161de4",
    ),
    Jar(
        "org.apache.logging.log4j",
        "log4j-core",
        "2.17.1",
        1790452,
        "c967f223487980b9364e94a7c7f9a8a01fd3ee7c19bdbf0b0f9f8cb8511f3d41",
    ),
    Jar(
        "org.apache.logging.log4j",
        "log4j-slf4j-impl",
        "2.17.1",
        24279,
        "e9a03720e5d5076009c2530635da9d08485e28a0b0ec20708dadc51afb78e41e",
    ),
)

# The servers load these from plugins/iceberg: the lake format, Hadoop's file system, the catalog.
ICEBERG_JARS = (
    Jar(
        "org.apache.fluss",
        "fluss-lake-iceberg",
        FLUSS_VERSION,
        37456281,
        "b9d8aa37a1a1a1eb14c1a365ae40e8114dcff26367cdc08156ae4f6d0d911d93",
        unpublished_parent="fluss-lake",
    ),
    Jar(
        "org.apache.hadoop",
        "hadoop-client-api",
        "3.3.6",
        19763916,
        "f3d2347a6e1c6885d5bcfd4f60c3ac3810ec11068fc161e04329baabf412d963",
    ),
    Jar(
        "org.apache.hadoop",
        "hadoop-client-runtime",
        "3.3.6",
        30083899,
        "15f01bc804294df06d2effc87de363a83cf589f50558bdbf48f72541ad8de854",
    ),
    Jar(
        "commons-logging",
        "commons-logging",
        "1.2",
        61829,
        "daddea1ea0be0f56978ab3006b8ac92834afeefbd9b7e4e6316fca57df0fa636",
    ),
    Jar(
        "org.xerial",
        "sqlite-jdbc",
        "3.46.0.0",
        13615436,
        "e697df15be3f95219d80773c5f1002030e33e932adda186c1c86fd51df6691a9",
    ),
)
