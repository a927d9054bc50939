"""The client's configuration: every key, its default, its checks.

Keys may be written with dots or dashes (`writer.batch-size`, `writer.batch.size`); an unknown
key is refused with the nearest known one. Passwords never appear in `repr`, in errors or in a
pickle.
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


class Config:
    """Settings of a connection, from a dict of keys and values; each is also an attribute."""

    bootstrap_servers = Option("bootstrap.servers", "", addresses)
    connect_timeout_ms = Option("connect-timeout", 15_000, duration_ms(1))
    request_timeout_ms = Option("request-timeout", 30_000, duration_ms(1))
    retry_timeout_ms = Option("retry-timeout", 120_000, duration_ms(1))
    cluster_alias = Option("cluster.alias", "", text)

    writer_acks = Option("writer.acks", "all", _acks)
    writer_retries = Option("writer.retries", (1 << 31) - 1, whole_number(0))
    writer_request_max_size = Option("writer.request-max-size", 10 << 20, size(1024, 100 << 20))
    writer_batch_size = Option("writer.batch-size", 2 << 20, size(1024, 100 << 20))
    writer_dynamic_batch_size_enabled = Option("writer.dynamic-batch-size.enabled", True, boolean)
    writer_dynamic_batch_size_min = Option("writer.dynamic-batch-size-min", 256 << 10, size(1024))
    writer_batch_timeout_ms = Option("writer.batch-timeout-ms", 100, duration_ms(0))
    writer_bucket_no_key_assigner = Option(
        "writer.bucket.no-key-assigner", "sticky", one_of("sticky", "round_robin")
    )
    writer_enable_idempotence = Option("writer.enable-idempotence", True, boolean)
    writer_max_inflight_requests_per_bucket = Option(
        "writer.max-inflight-requests-per-bucket", 5, whole_number(1, 1000)
    )
    writer_buffer_memory_size = Option("writer.buffer.memory-size", 64 << 20, size(1024, 1 << 40))
    writer_buffer_wait_timeout_ms = Option(
        "writer.buffer.wait-timeout-ms", UNBOUNDED_MS, duration_ms(0)
    )
    writer_kv_backpressure_max_throttle_ms = Option(
        "writer.kv-backpressure.max-throttle-ms", 3_000, duration_ms(0)
    )

    scanner_log_max_poll_records = Option("scanner.log.max-poll-records", 500, whole_number(1))
    scanner_log_fetch_max_bytes = Option("scanner.log.fetch.max-bytes", 16 << 20, size(1024))
    scanner_log_fetch_min_bytes = Option("scanner.log.fetch.min-bytes", 1, size(1))
    scanner_log_fetch_wait_max_time_ms = Option(
        "scanner.log.fetch.wait-max-time-ms", 500, duration_ms(0, 1 << 30)
    )
    scanner_log_fetch_max_bytes_for_bucket = Option(
        "scanner.log.fetch.max-bytes-for-bucket", 1 << 20, size(1024)
    )
    scanner_limit_rows_max = Option("scanner.limit.rows-max", 1_000_000, whole_number(1))
    scanner_remote_log_prefetch_num = Option(
        "scanner.remote-log.prefetch-num", 4, whole_number(1, 1000)
    )
    scanner_remote_log_read_concurrency = Option(
        "scanner.remote-log.read-concurrency", 4, whole_number(1, 1000)
    )
    remote_file_download_thread_num = Option(
        "remote-file.download-thread-num", 3, whole_number(1, 1000)
    )

    security_protocol = Option("security.protocol", "PLAINTEXT", one_of("PLAINTEXT", "sasl"))
    security_sasl_mechanism = Option("security.sasl.mechanism", "PLAIN", one_of("PLAIN"))
    security_sasl_username = Option("security.sasl.username", "", text)
    security_sasl_password = Option("security.sasl.password", "", secret_text, secret=True)

    embedded_synchronous = Option("embedded.synchronous", "full", one_of("full", "normal", "off"))
    embedded_lock_timeout_ms = Option("embedded.lock-timeout", 60_000, duration_ms(1))

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {}
        refused = self._take(properties or {})
        # What was given may hold a password, and some reports show what frames hold.
        del properties
        if refused is not None:
            self._values.clear()
            raise refused

    def _take(self, properties: Mapping[str, Any]) -> ConfigError | None:
        """Set all keys; returns what cannot be used, without a traceback."""
        for key, value in properties.items():
            try:
                option = find_option(str(key))
            except ConfigError as error:
                return without_frames(error)
            refused = option.store(self, value)
            if refused is not None:
                return refused
        return None

    def resolved_bootstrap(self) -> str:
        """The address: the key, else the environment; an error names both forms of it."""
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
        """The cluster's name in identities and URIs: the key, the environment, or `default`."""
        return self.cluster_alias or os.environ.get(ALIAS_VARIABLE, "").strip() or "default"

    def check(self) -> None:
        """Raise for settings that contradict each other."""
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
        if self.writer_batch_size > self.writer_request_max_size:
            raise ConfigError("writer.batch-size must not exceed writer.request-max-size")

    def to_dict(self, *, with_secrets: bool = False) -> dict[str, Any]:
        """The keys that were set; secrets only when asked for."""
        return {
            key: value
            for key, value in self._values.items()
            if with_secrets or not OPTIONS[key].secret
        }

    def copy(self) -> Config:
        """A config of its own with the same settings."""
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
    """The option of that key in any spelling, or an error that names the nearest one."""
    option = _BY_CANONICAL.get(_canonical(key))
    if option is not None:
        return option
    near = difflib.get_close_matches(_canonical(key), _BY_CANONICAL, n=1)
    hint = f"; did you mean {_BY_CANONICAL[near[0]].key}?" if near else ""
    raise ConfigError(f"unknown configuration key '{key}'{hint}")
