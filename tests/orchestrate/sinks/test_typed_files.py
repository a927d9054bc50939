"""Values of CSV and JSON are read as the types that the target has, not guessed at."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from fluss_orchestrate.core.loading import SourceError, open_rows

TYPES = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("code", pa.string()),
        ("amount", pa.decimal128(10, 2)),
    ]
)
EXPECTED = [
    {"id": 1, "code": "007", "amount": Decimal("1.50")},
    {"id": 2, "code": "NA", "amount": None},
    {"id": 3, "code": None, "amount": Decimal("2.00")},
    {"id": 4, "code": "", "amount": None},
]


def test_csv(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('id,code,amount\n1,007,1.5\n2,NA,\n3,,2\n4,"",\n')
    assert open_rows(file, types=TYPES).read_all().to_pylist() == EXPECTED
    file.write_text("id,code,amount\none,x,1\n")
    with pytest.raises((SourceError, pa.ArrowInvalid), match="one"):
        open_rows(file, types=TYPES).read_all()


def test_json(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(
        '{"id": 1, "code": "007", "amount": "1.50"}\n{"id": 2, "code": "NA"}\n'
        '{"id": 3, "amount": "2.00"}\n{"id": 4, "code": ""}\n'
    )
    assert open_rows(file, types=TYPES).read_all().to_pylist() == EXPECTED
    assert open_rows(file).read_all()["amount"].type == pa.string()
