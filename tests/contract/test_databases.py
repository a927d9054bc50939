"""Databases: made, found, described and dropped."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import done

TABLE = fluss.TableDescriptor(fluss.Schema(pa.schema([("id", pa.int32())])), bucket_count=1)


@pytest.fixture
def name(admin: fluss.FlussAdmin, shared_database: str) -> Iterator[str]:
    """A database name that is free before and after the test."""
    chosen = f"{shared_database}_other"
    yield chosen
    done(admin.drop_database(chosen, ignore_if_not_exists=True, cascade=True))


@pytest.mark.supports("Admin.createDatabase", "Admin.databaseExists", "Admin.listDatabases")
def test_a_new_database_exists_and_is_listed(admin: fluss.FlussAdmin, name: str) -> None:
    assert not done(admin.database_exists(name))
    done(admin.create_database(name))
    assert done(admin.database_exists(name))
    assert name in done(admin.list_databases())


@pytest.mark.supports("Admin.getDatabaseInfo")
def test_comment_and_properties_come_back(admin: fluss.FlussAdmin, name: str) -> None:
    before_ms = time.time() * 1000
    descriptor = fluss.DatabaseDescriptor("orders, and more: ü", {"owner": "sales", "n": "1"})
    done(admin.create_database(name, descriptor))
    info = done(admin.get_database_info(name))
    assert info.database_name == name
    assert info.get_database_descriptor() == descriptor
    assert info.get_database_descriptor().get_custom_properties() == {"owner": "sales", "n": "1"}
    # Server and client share this machine's clock.
    assert before_ms - 1000 < info.created_time <= info.modified_time < time.time() * 1000 + 1000


def test_a_database_without_descriptor_has_no_comment(admin: fluss.FlussAdmin, name: str) -> None:
    done(admin.create_database(name))
    descriptor = done(admin.get_database_info(name)).get_database_descriptor()
    assert descriptor.comment is None
    assert descriptor.get_custom_properties() == {}


def test_creating_twice_is_an_error_unless_ignored(admin: fluss.FlussAdmin, name: str) -> None:
    done(admin.create_database(name, fluss.DatabaseDescriptor("first")))
    with pytest.raises(errors.DatabaseAlreadyExistError) as raised:
        done(admin.create_database(name))
    assert raised.value.error_code == fluss.ErrorCode.DATABASE_ALREADY_EXIST
    assert name in raised.value.message
    done(admin.create_database(name, fluss.DatabaseDescriptor("second"), ignore_if_exists=True))
    assert done(admin.get_database_info(name)).get_database_descriptor().comment == "first"


@pytest.mark.supports("Admin.dropDatabase")
def test_a_full_database_is_dropped_only_with_cascade(admin: fluss.FlussAdmin, name: str) -> None:
    path = fluss.TablePath(name, "t")
    done(admin.create_database(name))
    done(admin.create_table(path, TABLE))
    with pytest.raises(errors.DatabaseNotEmptyError) as raised:
        done(admin.drop_database(name, cascade=False))
    assert raised.value.error_code == fluss.ErrorCode.DATABASE_NOT_EMPTY
    assert done(admin.table_exists(path))
    done(admin.drop_database(name))  # the guides' default is cascade=True
    assert not done(admin.database_exists(name))
    assert not done(admin.table_exists(path))


def test_an_empty_database_is_dropped_without_cascade(admin: fluss.FlussAdmin, name: str) -> None:
    done(admin.create_database(name))
    done(admin.drop_database(name, cascade=False))
    assert name not in done(admin.list_databases())


def test_a_missing_database_is_a_typed_error(admin: fluss.FlussAdmin, name: str) -> None:
    calls = {
        "drop": lambda: admin.drop_database(name),
        "info": lambda: admin.get_database_info(name),
        "tables": lambda: admin.list_tables(name),
        "create table": lambda: admin.create_table(fluss.TablePath(name, "t"), TABLE),
    }
    for what, call in calls.items():
        with pytest.raises(errors.DatabaseNotExistError) as raised:
            done(call())
        assert raised.value.error_code == fluss.ErrorCode.DATABASE_NOT_EXIST, what
        assert name in raised.value.message, what
    done(admin.drop_database(name, ignore_if_not_exists=True))


@pytest.mark.parametrize("bad", ["", "a b", "x.y", "__hidden", "n" * 201, "ü", None])
def test_a_name_that_fluss_cannot_hold_is_refused(admin: fluss.FlussAdmin, bad: str) -> None:
    with pytest.raises(errors.InvalidDatabaseError) as raised:
        done(admin.create_database(bad))
    assert raised.value.error_code == fluss.ErrorCode.INVALID_DATABASE_EXCEPTION
