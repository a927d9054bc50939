"""The declarations of the sinks; `airflow_provider/test_new_sink.py` adds one to every shell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_client.errors import ConfigError
from fluss_orchestrate.core.sinks.registry import (
    address_node,
    declaration,
    declarations,
    file_node,
)
from tests import sink_declarations

SINKS = {"fluss_table", "iceberg", "parquet", "sql"}


def test_every_sink_is_declared_and_nothing_optional_is_imported() -> None:
    code = (
        "import sys\n"
        "from fluss_orchestrate.core.sinks import registry\n"
        "light = 'pyarrow' not in sys.modules\n"
        "names = sorted(registry.declarations())\n"
        "found = [m for m in ('pyiceberg', 'sqlalchemy') if m in sys.modules]\n"
        "import json; print(json.dumps([light, names, found]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    light, names, found = json.loads(done.stdout)
    assert light
    assert names == sorted(declarations())
    assert SINKS.issubset(names)
    assert found == []


def test_the_generated_files_are_up_to_date() -> None:
    assert sink_declarations.outdated() == []


def test_every_sink_exists_in_every_shell() -> None:
    from fluss_orchestrate import airflow
    from fluss_orchestrate.cli.commands.scan import sink_forms
    from fluss_orchestrate.dagster.components.increments import IncrementAttributes

    for name, declared in declarations().items():
        target = getattr(airflow, f"{declared.camel_name}Target")
        assert target.sink_name == name
        assert target.__module__ == "fluss_orchestrate.airflow.targets"
        assert name in IncrementAttributes.model_fields
        assert f"{declared.short_name}:{declared.place}" in sink_forms()


def test_fields_are_checked() -> None:
    parquet, sql = declaration("parquet"), declaration("sql")
    with pytest.raises(ConfigError, match="no field color"):
        parquet.completed({"path": "x", "color": "red"})
    with pytest.raises(ConfigError, match="sink sql needs url"):
        sql.completed({"table": "t"})
    filled = {"path": "x", "compression": "zstd", "storage": {}}
    assert parquet.completed({"path": "x"}) == filled


def test_lineage_shows_no_login(tmp_path: Path) -> None:
    assert file_node(str(tmp_path)) == ("file", str(tmp_path))
    assert file_node("s3://me:hush@bucket/a/b") == ("s3://bucket", "a/b")
    assert address_node("postgresql+psycopg2://me:hush@host/db", "t") == ("postgresql://host", "t")
    values = {"table": "t", "schema": "s", "url": "postgresql://me:hush@host/db"}
    assert declaration("sql").node(values, "") == ("postgresql://host", "s.t")
    catalog = {"uri": "https://me:hush@catalog", "warehouse": "w"}
    iceberg = declaration("iceberg").node({"table": "a.b", "catalog": catalog}, "")
    assert iceberg == ("https://catalog", "a.b")
    assert declaration("fluss_table").node({"table": "a.b"}, "shop") == ("fluss://shop", "a.b")
