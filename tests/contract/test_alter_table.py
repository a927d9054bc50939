"""Changing a table: columns at the end, options set and reset, and the schemas it has had."""

from __future__ import annotations

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done

LOG = {"id": pa.int32(), "name": pa.string()}


@pytest.mark.supports("Admin.alterTable (add column)", "Admin.getTableSchema")
def test_columns_are_added_at_the_end_and_the_history_is_kept(tables: Tables) -> None:
    admin, path = tables.admin, tables.create(LOG).get_table_path()
    nested = fluss.Column("place", fluss.DataTypes.row([_field("x", "int"), _field("y", "int")]))
    done(
        admin.alter_table(
            path, add_columns=[pa.field("age", pa.int64(), metadata={"comment": "years"})]
        )
    )
    done(admin.alter_table(path, add_columns=[nested]))

    info = done(admin.get_table_info(path))
    assert info.schema_id == 3
    assert info.get_column_names() == ["id", "name", "age", "place"]
    assert info.get_schema().columns[2].comment == "years"
    ids = [column.id for column in info.get_schema().columns]
    assert ids == sorted(set(ids)), "ids are never given twice"

    history = done(admin.list_table_schemas(path))
    assert {i: s.get_column_names() for i, s in history.items()} == {
        1: ["id", "name"],
        2: ["id", "name", "age"],
        3: ["id", "name", "age", "place"],
    }
    assert done(admin.get_table_schema(path)) == (3, info.get_schema())
    assert done(admin.get_table_schema(path, 2))[1].get_column_names() == ["id", "name", "age"]


def _field(name: str, kind: str) -> fluss.Field:
    return fluss.Field(name, getattr(fluss.DataTypes, kind)())


def test_a_schema_that_never_was(tables: Tables) -> None:
    path = tables.create(LOG).get_table_path()
    with pytest.raises(errors.SchemaNotExistError) as raised:
        done(tables.admin.get_table_schema(path, 7))
    assert raised.value.error_code == fluss.ErrorCode.SCHEMA_NOT_EXIST


@pytest.mark.supports("Admin.alterTable (set and reset options)")
def test_options_are_set_and_reset(tables: Tables) -> None:
    admin = tables.admin
    path = tables.create(LOG, custom_properties={"owner": "web", "tier": "1"}).get_table_path()
    done(
        admin.alter_table(
            path,
            set_options={"owner": "sales", "note": "new", "table.log.tiered.local-segments": 5},
            reset_options=["tier"],
        )
    )
    info = done(admin.get_table_info(path))
    assert info.get_custom_properties() == {"owner": "sales", "note": "new"}
    assert info.get_properties()["table.log.tiered.local-segments"] == "5"
    assert info.schema_id == 1
    assert info.modified_time >= info.created_time

    done(admin.alter_table(path, reset_options=["table.log.tiered.local-segments"]))
    assert (
        "table.log.tiered.local-segments" not in done(admin.get_table_info(path)).get_properties()
    )


def test_columns_and_options_in_one_call(tables: Tables) -> None:
    path = tables.create(LOG).get_table_path()
    done(
        tables.admin.alter_table(
            path, add_columns=[pa.field("age", pa.int64())], set_options={"owner": "web"}
        )
    )
    info = done(tables.admin.get_table_info(path))
    assert info.get_column_names() == ["id", "name", "age"]
    assert info.get_custom_properties() == {"owner": "web"}


def test_a_change_that_fluss_cannot_make_is_refused(tables: Tables) -> None:
    path = tables.create(LOG).get_table_path()
    refused = {
        "not null": {"add_columns": [pa.field("age", pa.int64(), nullable=False)]},
        "there already": {"add_columns": [pa.field("name", pa.string())]},
        "fixed option": {"set_options": {"table.log.format": "INDEXED"}},
        "unknown option": {"set_options": {"table.no-such": "1"}},
    }
    for what, change in refused.items():
        with pytest.raises(fluss.FlussError) as raised:
            done(tables.admin.alter_table(path, **change))
        assert isinstance(raised.value, _REFUSALS), (what, raised.value)
        assert "\n" not in raised.value.message, what
    info = done(tables.admin.get_table_info(path))
    assert info.schema_id == 1
    assert info.get_column_names() == ["id", "name"]


_REFUSALS = (
    errors.InvalidAlterTableError,
    errors.InvalidConfigError,
    errors.InvalidTableError,
    errors.SchemaError,
)


def test_nothing_to_change_is_an_error(tables: Tables) -> None:
    path = tables.create(LOG).get_table_path()
    with pytest.raises(errors.SchemaError, match="nothing to change"):
        done(tables.admin.alter_table(path))


def test_a_missing_table_may_be_ignored(tables: Tables) -> None:
    done(
        tables.admin.alter_table(
            tables.path(), set_options={"owner": "web"}, ignore_if_not_exists=True
        )
    )
