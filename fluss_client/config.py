"""The configuration of the client: every key with its default, its check and its description.

Keys may be written with dots or dashes (`writer.batch-size`, `writer.batch.size`). An unknown key
is refused, and the error names the nearest known one. Passwords never appear in `repr`, in errors
or in a pickle. `docs/reference/configuration.md` is made from the table of keys in `Config`.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fluss_client.errors import ConfigError, without_frames
from fluss_client.options import EMBEDDED_SCHEME as EMBEDDED_SCHEME
from fluss_client.options import (
    UNBOUNDED_MS,
    Option,
    addresses,
    boolean,
    duration_ms,
    one_of,
    secret_text,
    size,
    text,
    whole_number,
)

BOOTSTRAP_VARIABLE = "FLUSS_BOOTSTRAP_SERVERS"
ALIAS_VARIABLE = "FLUSS_CLUSTER_ALIAS"
_ALIASES = {"request-max-size": "writer.request-max-size"}


def _acks(key: str, value: Any) -> str:
    word = str(value).strip().lower()
    if word in ("all", "-1"):
        return "all"
    if word in ("0", "1"):
        return word
    raise ConfigError(f"{key} is all, 1 or 0, not '{value}'")


_FIXED_BATCH_SIZE = "writer.batch-size is the bound of every batch"


class Config:
    """The settings of a connection; each key is also an attribute.

    Args:
        properties: Keys and values; the keys with dots or dashes.

    Raises:
        ConfigError: A key is unknown or its value cannot be used.
    """

    bootstrap_servers = Option(
        "bootstrap.servers",
        "",
        addresses,
        "The addresses of any servers as `host:port[,host:port]`, or `embedded:PATH` for a "
        "local directory.",
    )
    connect_timeout_ms = Option(
        "connect-timeout",
        15_000,
        duration_ms(1),
        "The time to connect, agree on API versions and authenticate.",
    )
    request_timeout_ms = Option(
        "request-timeout",
        30_000,
        duration_ms(1),
        "The time to wait for one answer; reads are repeated within it.",
    )
    retry_timeout_ms = Option(
        "retry-timeout",
        120_000,
        duration_ms(1),
        "How long writes and scans are repeated while no attempt succeeds.",
    )
    retry_backoff_ms = Option(
        "retry-backoff",
        20,
        duration_ms(1),
        "The pause after the first failed attempt; it doubles with each further one.",
    )
    retry_backoff_max_ms = Option(
        "retry-backoff-max", 2_000, duration_ms(1), "The longest pause between two attempts."
    )
    cluster_alias = Option(
        "cluster.alias", "", text, "The name of the cluster in identities and URIs."
    )

    writer_acks = Option(
        "writer.acks",
        "all",
        _acks,
        "Which replicas acknowledge a write: `all`, `1` or `0`; idempotence needs `all`.",
    )
    writer_retries = Option(
        "writer.retries",
        (1 << 31) - 1,
        whole_number(0),
        "How often a batch is sent again after an error.",
    )
    writer_request_max_size = Option(
        "writer.request-max-size", 10 << 20, size(1024, 100 << 20), "The most bytes of one request."
    )
    writer_batch_size = Option(
        "writer.batch-size",
        2 << 20,
        size(1024, 100 << 20),
        "The most bytes of one batch of one bucket; a batch of upserts also has at most "
        "60,000 rows.",
    )
    writer_dynamic_batch_size_enabled = Option(
        "writer.dynamic-batch-size.enabled",
        True,
        boolean,
        "Accepted for compatibility with other Fluss clients, without effect.",
        no_effect=_FIXED_BATCH_SIZE,
    )
    writer_dynamic_batch_size_min = Option(
        "writer.dynamic-batch-size-min",
        256 << 10,
        size(1024),
        "Accepted for compatibility with other Fluss clients, without effect.",
        no_effect=_FIXED_BATCH_SIZE,
    )
    writer_batch_timeout_ms = Option(
        "writer.batch-timeout-ms",
        100,
        duration_ms(0),
        "How long a row waits for others; Arrow data that fills an eighth of a batch does not "
        "wait while worker threads are idle.",
    )
    writer_bucket_no_key_assigner = Option(
        "writer.bucket.no-key-assigner",
        "sticky",
        one_of("sticky", "round_robin"),
        "How rows of a table without bucket keys are spread: `sticky` or `round_robin`.",
    )
    writer_enable_idempotence = Option(
        "writer.enable-idempotence",
        True,
        boolean,
        "Whether batches are numbered, so that a repeated batch does not double its rows.",
    )
    writer_max_inflight_requests_per_bucket = Option(
        "writer.max-inflight-requests-per-bucket",
        5,
        whole_number(1, 1000),
        "The most unanswered batches of one bucket; at most 5 with idempotence.",
    )
    writer_connections_per_server = Option(
        "writer.connections-per-server",
        2,
        whole_number(1, 16),
        "The number of connections to each server that carry writes; a server handles the requests "
        "of a connection one after the other, and a bucket stays on its connection.",
    )
    writer_buffer_memory_size = Option(
        "writer.buffer.memory-size",
        64 << 20,
        size(1024, 1 << 40),
        "The most bytes of rows of one writer that are not acknowledged.",
    )
    writer_buffer_wait_timeout_ms = Option(
        "writer.buffer.wait-timeout-ms",
        UNBOUNDED_MS,
        duration_ms(0),
        "How long a write waits for room in the buffer.",
    )
    writer_kv_backpressure_max_throttle_ms = Option(
        "writer.kv-backpressure.max-throttle-ms",
        3_000,
        duration_ms(0),
        "The longest pause after a server has refused upserts because its storage is behind.",
    )

    scanner_log_max_poll_records = Option(
        "scanner.log.max-poll-records", 500, whole_number(1), "The most records of one `poll()`."
    )
    scanner_log_fetch_max_bytes = Option(
        "scanner.log.fetch.max-bytes",
        16 << 20,
        size(1024),
        "The most bytes of one answer to a fetch.",
    )
    scanner_log_fetch_min_bytes = Option(
        "scanner.log.fetch.min-bytes",
        1,
        size(1),
        "The bytes that a server waits for before it answers a fetch.",
    )
    scanner_log_fetch_wait_max_time_ms = Option(
        "scanner.log.fetch.wait-max-time-ms",
        500,
        duration_ms(0, 1 << 30),
        "The longest time that a server waits for these bytes.",
    )
    scanner_log_fetch_max_bytes_for_bucket = Option(
        "scanner.log.fetch.max-bytes-for-bucket",
        1 << 20,
        size(1024),
        "The most bytes of one bucket in an answer to a fetch.",
    )
    scanner_log_read_preference = Option(
        "scanner.log.read-preference",
        "local_first",
        one_of("local_first", "remote_first"),
        "Where servers from 1.0 on read log segments that lie both on their disk and in remote "
        "storage: `local_first` or `remote_first`.",
    )
    scanner_limit_rows_max = Option(
        "scanner.limit.rows-max",
        1_000_000,
        whole_number(1),
        "The most rows that one limit scan asks a server for; set it lower if rows have much "
        "more than 100 bytes.",
    )
    scanner_bytes_per_second_max = Option(
        "scanner.bytes-per-second.max",
        0,
        size(0),
        "The most bytes per second that a connection reads from a cluster's logs and KV snapshots, "
        "on average; 0 is no limit.",
    )
    scanner_state_limit_scan_rows_max = Option(
        "scanner.state.limit-scan.rows-max",
        200_000,
        whole_number(0),
        "The most rows of a bucket that is read by a limit scan, because it has neither a KV "
        "snapshot nor a complete changelog.",
    )
    scanner_state_limit_scan_bytes_max = Option(
        "scanner.state.limit-scan.bytes-max",
        64 << 20,
        size(0),
        "The most bytes of such a bucket, judged by its number of rows and the size of the first.",
    )
    scanner_state_lease_ms = Option(
        "scanner.state.lease",
        600_000,
        duration_ms(10_000),
        "How long servers keep a KV snapshot after the process that reads it has died.",
    )
    scanner_state_folder = Option(
        "scanner.state.folder",
        "",
        text,
        "The folder for the files of KV snapshots; by default the temporary folder of the system.",
    )
    scanner_remote_log_prefetch_num = Option(
        "scanner.remote-log.prefetch-num",
        4,
        whole_number(1, 1000),
        "The number of buckets whose remote segments are read at the same time.",
    )
    scanner_remote_log_read_concurrency = Option(
        "scanner.remote-log.read-concurrency",
        4,
        whole_number(1, 1000),
        "The number of ranges of one remote segment that are read at the same time; one on "
        "`file:`.",
    )
    remote_file_download_thread_num = Option(
        "remote-file.download-thread-num",
        3,
        whole_number(1, 1000),
        "The number of threads that read remote segments.",
    )

    security_protocol = Option(
        "security.protocol",
        "PLAINTEXT",
        one_of("PLAINTEXT", "sasl"),
        "How the client authenticates: `PLAINTEXT` (not at all) or `sasl`.",
    )
    security_sasl_mechanism = Option(
        "security.sasl.mechanism",
        "PLAIN",
        one_of("PLAIN"),
        "The SASL mechanism; `PLAIN` is the only one.",
    )
    security_sasl_username = Option("security.sasl.username", "", text, "The user name for `sasl`.")
    security_sasl_password = Option(
        "security.sasl.password",
        "",
        secret_text,
        "The password for `sasl`; it is never shown and never pickled.",
        secret=True,
    )

    embedded_synchronous = Option(
        "embedded.synchronous",
        "full",
        one_of("full", "normal", "off"),
        "How the embedded engine syncs to disk, which decides what survives a power cut: "
        "`full`, `normal` or `off`.",
    )
    embedded_lock_timeout_ms = Option(
        "embedded.lock-timeout",
        60_000,
        duration_ms(1),
        "How long a writer of the embedded engine waits for another process.",
    )

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {}
        refused = self._take(properties or {})
        # The properties may hold a password, and some error reports show the variables of a frame.
        del properties
        if refused is not None:
            self._values.clear()
            raise refused

    def _take(self, properties: Mapping[str, Any]) -> ConfigError | None:
        """Set all keys. Return the first that cannot be used, as an error without a traceback."""
        for key, value in properties.items():
            try:
                option = find_option(str(key))
            except ConfigError as error:
                return without_frames(error)
            refused = option.store(self, value, stacklevel=4)
            if refused is not None:
                return refused
        return None

    def resolved_bootstrap(self) -> str:
        """Return the address of the key, or else of the environment.

        Raises:
            ConfigError: There is no address.
        """
        address = self.bootstrap_servers or self._address_of_environment()
        if not address:
            raise ConfigError(
                "no address: set bootstrap.servers (or the variable "
                f"{BOOTSTRAP_VARIABLE}) to host:port[,host:port] for a cluster, or to "
                f"{EMBEDDED_SCHEME}PATH for the embedded engine in a local directory"
            )
        return address

    def _address_of_environment(self) -> str:
        found = Config()
        refused = Config.bootstrap_servers.store(found, os.environ.get(BOOTSTRAP_VARIABLE, ""))
        if refused is not None:
            refused.message = f"the variable {BOOTSTRAP_VARIABLE}: {refused.message}"
            raise refused
        return found.bootstrap_servers

    def resolved_alias(self) -> str:
        """Return the name of the cluster: of the key, of the environment, or `default`."""
        return self.cluster_alias or os.environ.get(ALIAS_VARIABLE, "").strip() or "default"

    def check(self) -> None:
        """Check settings that depend on each other.

        Raises:
            ConfigError: Two settings contradict each other.
        """
        if self.security_protocol == "sasl":
            for option in (Config.security_sasl_username, Config.security_sasl_password):
                if not self._values.get(option.key):
                    raise ConfigError(f"security.protocol is sasl: set {option.key} too")
        if self.writer_enable_idempotence:
            if self.writer_acks != "all":
                raise ConfigError(
                    "an idempotent writer needs writer.acks=all: set it, or "
                    "writer.enable-idempotence=false and accept rows twice after a retry"
                )
            if self.writer_max_inflight_requests_per_bucket > 5:
                raise ConfigError(
                    "an idempotent writer needs writer.max-inflight-requests-per-bucket of at "
                    "most 5: the server remembers five batches"
                )
            if self.writer_retries == 0:
                raise ConfigError("an idempotent writer needs writer.retries above 0")
        if self.retry_backoff_ms > self.retry_backoff_max_ms:
            raise ConfigError("retry-backoff must not exceed retry-backoff-max")
        if self.writer_batch_size > self.writer_request_max_size:
            raise ConfigError("writer.batch-size must not exceed writer.request-max-size")

    def to_dict(self, *, with_secrets: bool = False) -> dict[str, Any]:
        """Return the keys that were set and their values; secrets only with `with_secrets`."""
        return {
            key: value
            for key, value in self._values.items()
            if with_secrets or not OPTIONS[key].secret
        }

    def copy(self) -> Config:
        """Return an independent configuration with the same settings."""
        twin = Config()
        twin._values.update(self._values)
        return twin

    def __repr__(self) -> str:
        shown = {
            key: "******" if OPTIONS[key].secret else value for key, value in self._values.items()
        }
        return f"Config({shown})"

    def __reduce__(self) -> tuple[object, ...]:
        if any(OPTIONS[key].secret for key in self._values):
            raise ConfigError(
                "a Config with a password is never pickled: pass the cluster's alias and let the "
                "other process read its own secret"
            )
        return (Config, (dict(self._values),))


def _options() -> Iterator[Option[Any]]:
    for value in vars(Config).values():
        if isinstance(value, Option):
            yield value


def _canonical(key: str) -> str:
    return re.sub(r"[._-]+", "-", key.strip().lower())


OPTIONS: dict[str, Option[Any]] = {option.key: option for option in _options()}
_BY_CANONICAL = {_canonical(key): option for key, option in OPTIONS.items()}
_BY_CANONICAL |= {alias: OPTIONS[key] for alias, key in _ALIASES.items()}


def find_option(key: str) -> Option[Any]:
    """Return the option of a `key` in any spelling.

    Raises:
        ConfigError: There is no such key; the message names the nearest one.
    """
    option = _BY_CANONICAL.get(_canonical(key))
    if option is not None:
        return option
    near = difflib.get_close_matches(_canonical(key), _BY_CANONICAL, n=1)
    hint = f"; did you mean {_BY_CANONICAL[near[0]].key}?" if near else ""
    raise ConfigError(f"unknown configuration key '{key}'{hint}")
