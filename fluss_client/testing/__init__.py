"""Start and stop a real Fluss cluster on this machine, for tests, demos and first steps."""

from fluss_client.testing.cluster_info import ClusterInfo
from fluss_client.testing.errors import LocalClusterError
from fluss_client.testing.java import JavaRuntime, find_java
from fluss_client.testing.local_cluster import LocalCluster

__all__ = ["ClusterInfo", "JavaRuntime", "LocalCluster", "LocalClusterError", "find_java"]
