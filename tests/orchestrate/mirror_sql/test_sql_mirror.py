"""A mirror in SQL equals its table at the offsets of every committed plan."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fluss_client import FlussConnection
from tests.contract.tables import Tables
from tests.faults.recording import KILLS_PER_PART, parts_of
from tests.fix_postgres import new_database
from tests.orchestrate.mirror_sql.keyed_model import KeyedModel
from tests.orchestrate.mirror_sql.mirrors import Mirror, run_program, sql_mirror

SEED = 20261118
PROGRAMS, PROGRAMS_LONG = 5, 75
"""Per database and kind of source: 20 and 300 in all."""
STEPS = 14


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", parts_of(PROGRAMS_LONG))
def test_random_programs(
    tables: Tables,
    source: FlussConnection,
    sql_url: str,
    long_form: bool,
    part: int,
    tmp_path: Path,
) -> None:
    begin = part * KILLS_PER_PART
    for number in range(begin, begin + (KILLS_PER_PART if long_form else PROGRAMS)):
        rng = random.Random(SEED + number)
        print("seed", SEED + number)
        url = f"sqlite:///{tmp_path}/program{number}.db"
        if not sql_url.startswith("sqlite"):
            url = new_database(sql_url)
        model = KeyedModel(tables, rng, partitioned=rng.random() < 0.5, buckets=rng.randrange(1, 4))
        run_program(rng, model, Mirror(model, sql_mirror(url), source), STEPS)
