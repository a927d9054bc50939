"""Key tables in the lake: whatever was written and tiered, every reader equals the model."""

from __future__ import annotations

import pytest

from fluss_client import FlussConnection
from tests.orchestrate.lake.key_programs import VARIANTS, make_key_table, run_program

PROGRAMS_LONG = 75


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_random_programs(connection: FlussConnection, database: str, variant: str) -> None:
    for seed in range(2):
        table = make_key_table(connection, database, f"s{seed}_", **VARIANTS[variant])
        run_program(table, seed)
