"""Texts that people and schedulers hand in: understood, or refused by type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fluss_client.codec.partition_names import parse_partition_name, validate_partition_value
from fluss_client.config import OPTIONS, Config
from fluss_client.errors import FlussError
from fluss_client.model.table import TablePath
from fluss_client.model.type_text import parse_type
from fluss_client.net.pool import parse_addresses
from fluss_orchestrate.cli.parsing import time_ms
from fluss_orchestrate.cli.presentation.failures import UsageError
from fluss_orchestrate.core.identity import parse_table_uri
from fluss_orchestrate.core.provisioning.spec import load_table_specs, read_type
from fluss_orchestrate.dagster.sensors.ticks import read_cursor

PARSERS: dict[str, Callable[[str], Any]] = {
    "addresses": parse_addresses,
    "table path": TablePath.parse,
    "table uri": parse_table_uri,
    "type": parse_type,
    "column type": lambda text: read_type(text, "c"),
    "partition name": lambda text: parse_partition_name(text, ["a", "b"]),
    "partition value": validate_partition_value,
    "yaml": lambda text: load_table_specs(f"{text}\n"),
    "yaml spec": lambda text: load_table_specs(f"tables:\n- table: d.t\n  columns: {text}\n"),
    "time on the command line": lambda text: time_ms(text, "--until"),
    "cursor": lambda text: read_cursor(text, "offsets"),
}
WORDS = [
    "host:9123", "[::1]:1", "h:99999", "h:²", "d.t", "fluss://a/d/t", "fluss://[", "row<a int, b",
    "decimal(99,1)", "timestamp[us, tz=Nowhere]", "a$b", "-15m", "-" + "9" * 30 + "d",
    "0001-01-01T00:00+23:59", "9" * 30, "²", "\ud800", "\x00", "&a [*a]", "{a: int}", "!!set {a}",
    "array<" * 400, "2026-02-30T00:00Z",
]  # fmt: skip
texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from(WORDS),
    st.tuples(st.sampled_from(WORDS), st.text(max_size=5)).map("".join),
)


def check(parser: Callable[[str], Any], text: str) -> None:
    try:
        parser(text)
    except (FlussError, UsageError):
        return


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_text_is_understood_or_refused_by_type(name: str, long_form: bool) -> None:
    @settings(
        max_examples=20_000 if long_form else 80,
        deadline=None,
        database=None,
        derandomize=not long_form,
        suppress_health_check=list(HealthCheck),
    )
    @given(texts)
    @example("")
    def attempt(text: str) -> None:
        check(PARSERS[name], text)

    attempt()
    for word in WORDS:
        check(PARSERS[name], word)


@pytest.mark.filterwarnings("ignore:.* has no effect:UserWarning")
@pytest.mark.parametrize("key", sorted(OPTIONS))
def test_a_setting_is_taken_or_refused_by_type(key: str) -> None:
    for value in [*WORDS, "", "-1", "1e999", "nan", None, [], {}, -1, 10**30, 0.5, True]:
        check(lambda given: Config({key: given}), value)  # type: ignore[arg-type]
