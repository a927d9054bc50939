"""Where files are and who may read them, for stores that have a server here and for the others.

S3 runs for real in `tests/storage`. For Google, Azure, HDFS and the stores that speak the protocol
of S3 there is no server here: what their file systems are opened with is compared.
"""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pyarrow.fs as pafs
import pytest

from fluss_client.errors import ConfigError, CorruptDataError, UnsupportedError
from fluss_client.storage.failures import explain, storage_error
from fluss_client.storage.filesystems import open_storage
from fluss_client.storage.locations import parse_location
from fluss_client.storage.properties import (
    StorageProperties,
    environment_storage,
    storage_properties,
    token_properties,
)


@pytest.fixture(autouse=True)
def no_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "family", "host", "path"),
    [
        ("s3://bucket/a/b", "s3", "bucket", "bucket/a/b"),
        ("S3A://bucket/a/", "s3", "bucket", "bucket/a"),
        ("oss://bucket/a?b", "s3", "bucket", "bucket/a?b"),
        ("gs://bucket/a", "gcs", "bucket", "bucket/a"),
        ("hdfs://name:8020/a/b", "hdfs", "name:8020", "/a/b"),
        (
            "abfss://box@account.dfs.core.windows.net/a",
            "abfs",
            "box@account.dfs.core.windows.net",
            "box/a",
        ),
        ("file:///a/b%20c", "local", "", "/a/b c"),
        ("/a/b%20c", "local", "", "/a/b%20c"),
    ],
)
def test_parts_of_locations(given: str, family: str, host: str, path: str) -> None:
    place = parse_location(given)
    assert (place.family, place.host, place.path) == (family, host, path)
    # What a listing gives on that file system is a location again.
    inside = f"{place.path.rstrip('/')}/more"
    assert parse_location(place.of_path(inside)).path == inside


def test_a_login_in_a_location_is_not_shown() -> None:
    assert str(parse_location("s3://key:secret@bucket/a")) == "s3://bucket/a"
    with pytest.raises(ConfigError, match="names no bucket"):
        parse_location("s3:///a")


def test_credentials_come_from_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUSS_STORAGE__S3__ENDPOINT", "http://all")
    monkeypatch.setenv("FLUSS_STORAGE__S3__SESSION_TOKEN", "old")
    monkeypatch.setenv("FLUSS_STORAGE_MY_LAKE__S3__ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("FLUSS_STORAGE_MY_LAKE__S3__ENDPOINT", "http://lake")
    assert dict(environment_storage("my-lake")) == {
        "s3.access-key-id": "mine",
        "s3.endpoint": "http://lake",
    }
    assert dict(storage_properties({"s3.region": "eu"})) == {
        "s3.region": "eu",
        "s3.endpoint": "http://all",
        "s3.session-token": "old",
    }
    with pytest.raises(ConfigError, match="is no property of storage"):
        StorageProperties({"endpoint": "x"})


def test_credentials_are_neither_shown_nor_pickled() -> None:
    held = StorageProperties({"s3.secret-access-key": "hidden", "s3.region": "eu"})
    assert repr(held) == "StorageProperties(s3.region, s3.secret-access-key)"
    with pytest.raises(ConfigError, match="never pickled"):
        pickle.dumps(held)
    plain = StorageProperties({"s3.region": "eu"})
    assert pickle.loads(pickle.dumps(plain)) == plain


@pytest.mark.parametrize(
    ("scheme", "extra", "expected"),
    [
        (
            "s3",
            {"fs.s3a.region": "eu", "fs.s3a.endpoint": "http://s", "fs.s3a.path.style.access": "x"},
            {"s3.region": "eu", "s3.endpoint": "http://s"},
        ),
        ("s3a", {"fs.s3a.endpoint.region": "us"}, {"s3.region": "us"}),
        (
            "oss",
            {"fs.oss.endpoint": "http://o", "fs.oss.path.style.access": "false"},
            {"s3.endpoint": "http://o", "s3.force-virtual-addressing": "true"},
        ),
    ],
)
def test_tokens_of_servers_for_stores_of_s3(
    scheme: str, extra: dict[str, str], expected: dict[str, str]
) -> None:
    token = b'{"access_key_id": "a", "access_key_secret": "b", "security_token": "c"}'
    keys = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.session-token": "c"}
    assert dict(token_properties(scheme, token, extra)) == keys | expected


def test_tokens_of_servers_for_other_stores() -> None:
    token = b'{"security_token": "c"}'
    assert dict(token_properties("gs", token, {})) == {"gcs.oauth2.token": "c"}
    assert dict(token_properties("abfss", token, {})) == {"adls.token": "c"}
    assert dict(token_properties("hdfs", b"", {})) == {}
    with pytest.raises(CorruptDataError, match="is no JSON object") as told:
        token_properties("s3", b"secret words", {})
    assert "secret words" not in str(told.value)


class Opened:
    """Stands for a class of pyarrow.fs and keeps what it was made with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.given: dict[str, Any] = {}
        monkeypatch.setattr(pafs, name, self)

    def __call__(self, **given: Any) -> pafs.FileSystem:
        self.given = given
        return pafs.LocalFileSystem()


def test_google(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened(monkeypatch, "GcsFileSystem")
    properties = {
        "gcs.oauth2.token": "t",
        "gcs.oauth2.token-expires-at": "86400000",
        "gcs.service.host": "http://localhost:4443",
        "gcs.project-id": "p",
    }
    assert open_storage("gs://bucket/a", properties).path == "bucket/a"
    assert opened.given == {
        "project_id": "p",
        "access_token": "t",
        "credential_token_expiration": datetime(1970, 1, 2, tzinfo=UTC),
        "scheme": "http",
        "endpoint_override": "localhost:4443",
    }
    open_storage("gs://bucket/a")
    assert opened.given == {}


def test_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened(monkeypatch, "AzureFileSystem")
    place = open_storage("abfss://box@account.dfs.core.windows.net/a", {"adls.account-key": "k"})
    assert place.path == "box/a"
    assert opened.given == {"account_name": "account", "account_key": "k"}
    with pytest.raises(UnsupportedError, match=r"set adls\.account-key"):
        open_storage("abfss://box@account.dfs.core.windows.net/a", {"adls.token": "t"})
    with pytest.raises(ConfigError, match="names no account"):
        open_storage("abfss://box/a")


def test_hdfs(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened(monkeypatch, "HadoopFileSystem")
    assert open_storage("hdfs://name:8020/a", {"hdfs.user": "u"}).path == "/a"
    assert opened.given == {"host": "name", "port": 8020, "user": "u"}

    def no_library(**_: Any) -> pafs.FileSystem:
        raise OSError("Unable to load libhdfs")

    monkeypatch.setattr(pafs, "HadoopFileSystem", no_library)
    with pytest.raises(UnsupportedError, match="set HADOOP_HOME"):
        open_storage("hdfs://name/a")


def test_stores_that_speak_the_protocol_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened(monkeypatch, "S3FileSystem")
    with pytest.raises(ConfigError, match=r"set s3\.endpoint"):
        open_storage("oss://bucket/a")
    open_storage("oss://bucket/a", {"s3.endpoint": "https://oss-cn.example", "s3.anonymous": "1"})
    chosen = ("scheme", "endpoint_override", "force_virtual_addressing", "anonymous", "region")
    assert {name: opened.given[name] for name in chosen} == {
        "scheme": "https",
        "endpoint_override": "oss-cn.example",
        "force_virtual_addressing": True,
        "anonymous": True,
        "region": "us-east-1",
    }
    open_storage("s3://bucket/a", {"s3.region": "eu", "s3.role-arn": "r"})
    assert (opened.given["region"], opened.given["role_arn"]) == ("eu", "r")
    assert "force_virtual_addressing" not in opened.given
    with pytest.raises(ConfigError, match="is a number of seconds"):
        open_storage("s3://bucket/a", {"s3.region": "eu", "s3.request-timeout": "soon"})


def test_other_schemes_go_to_fsspec() -> None:
    place = open_storage("memory://a/b")
    with place.filesystem.open_output_stream(place.path) as stream:
        stream.write(b"here")
    with open_storage("memory://a/b").filesystem.open_input_file(place.path) as file:
        assert file.read() == b"here"
    with pytest.raises(UnsupportedError, match="neither Arrow nor fsspec opens 'nowhere:'"):
        open_storage("nowhere://a/b")


@pytest.mark.parametrize(
    ("said", "told", "kind"),
    [
        ("AWS Error NO_SUCH_BUCKET during PutObject", "there is no bucket 'b'", "StorageRefused"),
        ("code: RequestTimeTooSkewed", "set the clock", "StorageRefused"),
        ("ExpiredToken: it has expired", "get new ones", "StorageCredentialsExpired"),
        ("AWS Error INVALID_ACCESS_KEY_ID", "check s3.access-key-id", "StorageRefused"),
        ("SignatureDoesNotMatch", "check s3.secret-access-key", "StorageRefused"),
        ("the region 'x' is wrong; expecting 'y'", "set s3.region", "StorageRefused"),
        ("PermanentRedirect", "set s3.region", "StorageRefused"),
        ("AWS Error ACCESS_DENIED", "no permission", "StorageRefused"),
        ("AWS Error NETWORK_CONNECTION", "check s3.endpoint", "Storage"),
        ("AWS Error SLOW_DOWN", "with fewer at once", "Storage"),
        ("EOF: read 1 bytes", "an answer of the store was cut off", "Storage"),
        ("Parquet file size is 0 bytes", "an answer of the store was cut off", "Storage"),
        ("something\nelse", "s3://b/a: something else", "Storage"),
    ],
)
def test_what_a_store_says_is_one_sentence(said: str, told: str, kind: str) -> None:
    place = parse_location("s3://b/a")
    sentence = explain(OSError(said), place)
    assert told in sentence
    assert "\n" not in sentence
    assert type(storage_error(OSError(said), place, "read")).__name__ == f"{kind}Error"
