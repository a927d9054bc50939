"""The generated module: current, accepted by the runtime, and packed as the servers expect."""

from __future__ import annotations

from pathlib import Path

import google.protobuf
import pytest

from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire import generate

REPEATED_NUMBERS_UNPACKED = {"LakeTieringHeartbeatRequest.force_finished_tables"}


def test_the_installed_runtime_is_new_enough() -> None:
    module = Path(generate.__file__).with_name("fluss_pb2.py")
    minimum = generate.minimum_runtime(module.read_text(encoding="utf-8"))
    installed = tuple(int(part) for part in google.protobuf.__version__.split("."))
    assert minimum <= installed


def test_only_one_list_of_numbers_is_not_packed() -> None:
    unpacked = {
        f"{message.name}.{field.name}"
        for message in pb.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
        if field.is_repeated and field.cpp_type in (1, 2, 3, 4) and not field.is_packed
    }
    assert unpacked == REPEATED_NUMBERS_UNPACKED


def test_check_accepts_what_is_committed() -> None:
    pytest.importorskip("grpc_tools")
    assert generate.main(["--check"]) == 0


def test_check_says_what_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "fluss_client" / "wire"
    folder.mkdir(parents=True)
    made = {"fluss_pb2.py": b"new", "fluss_pb2.pyi": b"new"}
    monkeypatch.setattr(generate, "PROTO", folder / "fluss.proto")
    monkeypatch.setattr(generate, "compile_into", lambda _: made)
    (folder / "fluss_pb2.py").write_bytes(b"new")
    (folder / "fluss_pb2.pyi").write_bytes(b"old")
    assert generate.main(["--check"]) == 1
    assert "no longer matches fluss_pb2.pyi: run" in capsys.readouterr().err
    assert (folder / "fluss_pb2.pyi").read_bytes() == b"old"
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
