"""Starts and stops a real Fluss cluster on this machine, for tests, demos and first steps."""

from fluss_client.testing.errors import JavaNotFoundError, LocalClusterError
from fluss_client.testing.java import JavaRuntime, find_java
from fluss_client.testing.local_cluster import ClusterInfo, ClusterStatus, LocalCluster
from fluss_client.testing.readiness import log_tail
from fluss_client.testing.user_dirs import state_dir

__all__ = [
    "ClusterInfo",
    "ClusterStatus",
    "JavaNotFoundError",
    "JavaRuntime",
    "LocalCluster",
    "LocalClusterError",
    "find_java",
    "log_tail",
    "state_dir",
]
