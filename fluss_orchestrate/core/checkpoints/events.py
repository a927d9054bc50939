"""The events of a checkpoint's history, and how each is written down.

Every event says what happened and carries the whole state after it, so that the last one is all
that a run has to read. Bodies are zlib-compressed JSON with a version; newer ones are refused.
"""

from __future__ import annotations

import json
import secrets
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fluss_client.errors import ConfigError, CorruptDataError
from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.receipts import Receipt

EVENT_VERSION = 1
NAME_LENGTH_MAX = 500
RESERVED = "\x1f"
"""Begins names that a store or an interval scan keeps for itself."""
BODY_BYTES_MAX = 256 << 20
"""Far above the position of a million buckets; a few bytes can otherwise claim any size."""
_COMPRESSION_LEVEL = 6


class EventKind(StrEnum):
    """What happened."""

    PLAN = "plan"
    COMMIT = "commit"
    ABANDON = "abandon"
    ADOPT = "adopt"
    RESET = "reset"
    RETIRE = "retire"


INDEXED_KINDS = (EventKind.PLAN, EventKind.ABANDON)
"""Events by which a run key is given a plan, or loses it."""


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """What holds after an event."""

    position: TablePosition | None = None
    """None before the first plan."""
    pending: ScanPlan | None = None
    adopted_by: str = ""
    """The run that took the pending plan over."""
    retired: bool = False

    def to_json(self) -> dict[str, Any]:
        """The state as plain values."""
        return {
            "position": None if self.position is None else self.position.to_json(),
            "pending": None if self.pending is None else self.pending.to_json(),
            "adopted_by": self.adopted_by,
            "retired": self.retired,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CheckpointState:
        """The state from `to_json`."""
        position, pending = value["position"], value["pending"]
        return cls(
            None if position is None else TablePosition.from_json(position),
            None if pending is None else ScanPlan.from_json(pending),
            plain.text(value["adopted_by"]),
            bool(value["retired"]),
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a checkpoint's history. Nobody changes it once it is there."""

    name: str
    sequence: int
    kind: EventKind
    state: CheckpointState
    run_key: str = ""
    """Whose plan it is about; for `adopt` who took it over."""
    plan_id: str = ""
    nonce: str = ""
    """Made anew for every attempt to claim a sequence: tells mine from another's."""
    created_ms: int = -1
    receipt: Receipt | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """Reasons, lost ranges and the like, as plain values."""

    def body(self) -> bytes:
        """What the event holds beyond its name, sequence, kind and nonce."""
        value = {
            "version": EVENT_VERSION,
            "run_key": self.run_key,
            "plan_id": self.plan_id,
            "created_ms": self.created_ms,
            "state": self.state.to_json(),
            "receipt": None if self.receipt is None else self.receipt.to_json(),
            "details": dict(self.details),
        }
        text = json.dumps(value, separators=(",", ":"))
        return zlib.compress(text.encode(), _COMPRESSION_LEVEL)

    def to_json(self) -> dict[str, Any]:
        """The whole event as plain values, for `export` and for people."""
        return {
            "version": EVENT_VERSION,
            "name": self.name,
            "sequence": self.sequence,
            "kind": str(self.kind),
            "run_key": self.run_key,
            "plan_id": self.plan_id,
            "created_ms": self.created_ms,
            "state": self.state.to_json(),
            "receipt": None if self.receipt is None else self.receipt.to_json(),
            "details": dict(self.details),
        }


def event_of(columns: Mapping[str, Any], body: bytes) -> Event:
    """The event from its columns and its body; a newer version, or a damaged one, is refused."""
    name = columns["name"]
    try:
        with plain.reading(f"event {columns.get('seq')} of checkpoint '{name}'"):
            value = json.loads(_decompressed(body))
            return _event(
                value,
                name=name,
                sequence=int(columns["seq"]),
                kind=EventKind(columns["kind"]),
                nonce=columns["nonce"],
            )
    except zlib.error as error:
        raise CorruptDataError(
            f"event {columns.get('seq')} of checkpoint '{name}' cannot be read: {error}"
        ) from error


def _event(value: Mapping[str, Any], name: str, **columns: Any) -> Event:
    check_version(value, name)
    receipt = value["receipt"]
    return Event(
        name=name,
        state=CheckpointState.from_json(value["state"]),
        run_key=plain.text(value["run_key"]),
        plan_id=plain.text(value["plan_id"]),
        created_ms=plain.number(value["created_ms"]),
        receipt=None if receipt is None else Receipt.from_json(receipt),
        details=plain.mapping(value["details"]),
        **columns,
    )


def _decompressed(body: bytes) -> bytes:
    """What `body` holds, checked for its size before the memory is taken."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(body, BODY_BYTES_MAX)
    if unpacker.unconsumed_tail:
        raise ValueError(f"its body is larger than {BODY_BYTES_MAX} bytes")
    if not unpacker.eof:
        raise ValueError("its body ends too early")
    return text


def event_from_json(value: Mapping[str, Any]) -> Event:
    """The event from `Event.to_json`."""
    with plain.reading("event of a checkpoint"):
        return _event(
            value,
            name=plain.text(value["name"]),
            sequence=plain.number(value["sequence"]),
            kind=EventKind(value["kind"]),
            nonce=new_nonce(),
        )


def check_version(value: Mapping[str, Any], name: str) -> None:
    """Refuse what a newer release has written."""
    plain.check_version(value, EVENT_VERSION, f"an event of checkpoint '{name}'")


def check_checkpoint_name(name: str) -> str:
    """The name itself, or an error that says what one may hold."""
    if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise ConfigError(
            f"{name!r} cannot name a checkpoint: use 1 to {NAME_LENGTH_MAX} printable characters"
        )
    return name


def new_nonce() -> str:
    """A value that no other attempt has."""
    return secrets.token_hex(12)


def now_ms() -> int:
    """This machine's clock; for people, never to decide anything."""
    return time.time_ns() // 1_000_000
