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
    classifier: str = ""

    @property
    def file_name(self) -> str:
        """The file name of the jar in the cache."""
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{suffix}.jar"

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

# The servers load these from plugins/s3-plugin, if their remote storage is on S3.
S3_PLUGIN_JARS = (
    Jar(
        "org.apache.fluss",
        "fluss-fs-s3",
        FLUSS_VERSION,
        31382851,
        "9d85c2d83daa0ad5a7c3980162e96022154467f378b08333faa9d37beab682e3",
        unpublished_parent="fluss-filesystems",
    ),
)

# The S3 server itself, with everything that it needs.
S3_STORE_JARS = (
    Jar(
        "org.gaul",
        "s3proxy",
        "4.1.0",
        54955934,
        "a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d",
        classifier="jar-with-dependencies",
    ),
)

# Iceberg's REST catalog as its project tests with it, in Jetty. Hadoop and SQLite are among the
# jars above; Fluss has its Iceberg with Jackson under another name, which these classes cannot use.
CATALOG_JARS = (
    Jar(
        "org.apache.iceberg",
        "iceberg-core",
        "1.10.1",
        2353588,
        "5dc1472e3a393d9d5a713aedee7007cebdf62cabbe82c72feb6d3da8e50d7216",
    ),
    Jar(
        "org.apache.iceberg",
        "iceberg-api",
        "1.10.1",
        674113,
        "9c806b96f20882d1e5e7a4b9a8d7bc1fa32917b509af4e6d139afaa09a288396",
    ),
    Jar(
        "org.apache.iceberg",
        "iceberg-common",
        "1.10.1",
        31808,
        "167791c08975f299ebae6c508ea872b899673c33dc2911e4c265f95b96a656f1",
    ),
    Jar(
        "org.apache.iceberg",
        "iceberg-bundled-guava",
        "1.10.1",
        1794018,
        "05b79072e19071b1bcf7a4e382d624b3b2ccad6eaf79627676219bb48e4e834d",
    ),
    Jar(
        "com.fasterxml.jackson.core",
        "jackson-core",
        "2.18.2",
        597807,
        "d8054ae7c0d1c2d2f55d28e46026ebe5892881f3fab5f439233184381c3b4a1f",
    ),
    Jar(
        "com.fasterxml.jackson.core",
        "jackson-databind",
        "2.18.2",
        1658755,
        "4b364e6850dc89172fcf1d4dd26b8ff5488eda44ff4657e22dd265203dd5ab3c",
    ),
    Jar(
        "com.fasterxml.jackson.core",
        "jackson-annotations",
        "2.18.2",
        78494,
        "581bd61000ef7648943f781ca05689e56d03f6052748365a8e2b3a9b5d3fa32f",
    ),
    Jar(
        "org.apache.avro",
        "avro",
        "1.12.0",
        713436,
        "1f5fbfff9b7427d6832cc3031a3c81413d3e21d9e2551847d9231c28493f9492",
    ),
    Jar(
        "com.github.ben-manes.caffeine",
        "caffeine",
        "2.9.3",
        912143,
        "1e0a7bbef1dd791653143f3f05d0e489934bf5481e58a87c9e619cd46b68729b",
    ),
    Jar(
        "org.apache.httpcomponents.core5",
        "httpcore5",
        "5.3.5",
        909394,
        "34ce80396dcf2927406ddcd7c1c9063879220952ad0a2121c10103d3ad2cc3a4",
    ),
    Jar(
        "org.eclipse.jetty",
        "jetty-server",
        "11.0.26",
        804986,
        "3cc3b203b96c7115151ea94cad8af43c0914bfb6fe20cf2ca8378ec6822fa471",
    ),
    Jar(
        "org.eclipse.jetty",
        "jetty-servlet",
        "11.0.26",
        166082,
        "c09469f1045f9e207732692b3bc56e8fe4d0599de52d3bd593927c4a9060e679",
    ),
    Jar(
        "org.eclipse.jetty",
        "jetty-security",
        "11.0.26",
        121613,
        "1f0a1b58304741f243e2f6ac694e6506b1e26bb079cfc2baaa3f2a6ed4bf2d9f",
    ),
    Jar(
        "org.eclipse.jetty",
        "jetty-http",
        "11.0.26",
        279701,
        "de738c8cfd5701627b5373c42376453beb8276f989d75e5258e3b1ffe217e938",
    ),
    Jar(
        "org.eclipse.jetty",
        "jetty-io",
        "11.0.26",
        222995,
        "ce0ef76071e361d97f102e5cb48928b3cc66ac899d12be3ef0af8d06b4f768a1",
    ),
    Jar(
        "org.eclipse.jetty",
        "jetty-util",
        "11.0.26",
        578913,
        "1b61b875a6d40e8fd44cffb307bdb66f3459370a152a50a092a698c3737eeca9",
    ),
    Jar(
        "org.eclipse.jetty",
        "jetty-xml",
        "11.0.26",
        73811,
        "16fa7061a52d6052f4e1ed64dd1d61601d210bddc9ed6dbde8621b0edb7beb1f",
    ),
    Jar(
        "org.eclipse.jetty.toolchain",
        "jetty-jakarta-servlet-api",
        "5.0.2",
        605086,
        "efb20997729f32bfa6c8a8319037c353f7ad460d5d49f336bf232998ea2358db",
    ),
    Jar(
        "org.slf4j",
        "slf4j-api",
        "2.0.17",
        69908,
        "7b751d952061954d5abfed7181c1f645d336091b679891591d63329c622eb832",
    ),
    Jar(
        "org.slf4j",
        "slf4j-simple",
        "2.0.17",
        15716,
        "ddfea59ac074c6d3e24ac2c38622d2d963895e17f70b38ed4bdae4d780be6964",
    ),
)

# The servlet of that catalog. The jar also replaces classes of Hadoop for the tests of Iceberg: it
# must come after the true ones.
CATALOG_SERVLET_JARS = (
    Jar(
        "org.apache.iceberg",
        "iceberg-core",
        "1.10.1",
        1519700,
        "8c18111a61ea40ba23114e10e33bacfceca6cf36d2c9a932d880e0100f14af1e",
        classifier="tests",
    ),
)
