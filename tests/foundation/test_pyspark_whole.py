"""pyspark is what its wheel brought: pyspark-client, which writes into its folder, is not here."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata

import pytest


def test_pyspark_client_is_not_installed() -> None:
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.distribution("pyspark-client")


def test_every_file_of_pyspark_is_the_one_of_its_wheel() -> None:
    files = importlib.metadata.distribution("pyspark").files or []
    wrong = []
    for file in files:
        path = file.locate()
        if not path.exists():
            wrong.append(f"{file} is missing")
        elif file.suffix == ".py" and file.hash is not None:
            digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
                wrong.append(f"{file} is changed")
    assert wrong == []


def test_what_the_client_only_package_lacks_is_there() -> None:
    names = {str(file) for file in importlib.metadata.distribution("pyspark").files or []}
    assert "pyspark/sql/connect/session.py" in names
    assert any(name.startswith("pyspark/jars/spark-core_") for name in names)
    assert any(name.startswith("pyspark/jars/ivy-") for name in names)
