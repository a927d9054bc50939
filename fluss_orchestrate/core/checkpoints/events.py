"""The events of a checkpoint's history, and their format.

Every event says what happened and contains the whole state after it, so that a run has to look at
the last one only. Bodies are zlib-compressed JSON with a version; newer versions are refused. A
body has the whole position or what changed of it: `records.py` decides that, and rebuilds the
position.
"""

from __future__ import annotations

import json
import re
import secrets
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from fluss_client.errors import ConfigError, CorruptDataError
from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.checkpoints.layers import PositionLayer
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.plan import Generation, ScanPlan
from fluss_orchestrate.core.receipts import Receipt

EVENT_VERSION = 4
"""Version 2 has a generation, version 3 a change instead of the whole position, version 4 a change
upon an event of another name. Without all of these, an event is written as version 1, which every
release reads."""
CHANGE_VERSION = 3
NAME_LENGTH_MAX = 500
CALLER = "caller"
"""The sink of a caller who reads a plan and commits it without a `Sink`, as in a `with` block."""
RESERVED = "\x1f"
"""The prefix of names that stores and interval scans use for themselves."""
BODY_BYTES_MAX = 256 << 20
"""Far above the position of a million buckets. Without a limit, a few bytes could expand to any
size."""
_COMPRESSION_LEVEL = 6
_INTERVAL = re.compile(r"(?P<scan>.*)/\[(?P<since>-?\d+),(?P<until>-?\d+)\)", re.DOTALL)


class EventKind(StrEnum):
    """The kinds of events."""

    PLAN = "plan"
    COMMIT = "commit"
    ABANDON = "abandon"
    ADOPT = "adopt"
    RESET = "reset"
    RETIRE = "retire"
    CLAIM = "claim"


INDEXED_KINDS = (EventKind.PLAN, EventKind.ABANDON)
"""Events by which a run key is given a plan, or loses it."""


@dataclass(frozen=True, slots=True)
class IntervalName:
    """The name of the checkpoint of one interval, `scan/[since,until)`. It follows no table."""

    scan: str
    since_ms: int
    until_ms: int

    def __str__(self) -> str:
        return f"{self.scan}/[{self.since_ms},{self.until_ms})"

    @classmethod
    def of(cls, checkpoint: str) -> IntervalName | None:
        """Return the parts of a name; None if it is not that of an interval."""
        found = _INTERVAL.fullmatch(checkpoint)
        if found is None:
            return None
        return cls(found["scan"], int(found["since"]), int(found["until"]))


@dataclass(frozen=True, slots=True)
class Binding:
    """The columns and the sink of a checkpoint. The first plan of a generation fixes them."""

    sink: str
    columns: tuple[str, ...] | None = None
    """The columns that the user named; None for all, also for those that are added later."""
    metadata_columns: tuple[str, ...] = ()
    since: int = field(default=-1, compare=False)
    """The sequence of the plan that fixed the binding."""

    def __str__(self) -> str:
        columns = "all columns" if self.columns is None else f"columns {', '.join(self.columns)}"
        extra = f" with {', '.join(self.metadata_columns)}" if self.metadata_columns else ""
        return f"sink {self.sink}, {columns}{extra}"

    def to_json(self) -> dict[str, Any]:
        """Return the binding as plain values."""
        return {
            "sink": self.sink,
            "columns": None if self.columns is None else list(self.columns),
            "metadata_columns": list(self.metadata_columns),
            "since": self.since,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Binding | None:
        """Return the binding from what `to_json` returned; None for None."""
        if value is None:
            return None
        columns = value["columns"]
        return cls(
            plain.text(value["sink"]),
            None if columns is None else plain.texts(columns),
            plain.texts(value["metadata_columns"]),
            plain.number(value["since"]),
        )


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The state of a checkpoint after an event."""

    position: TablePosition | None = None
    """None before the first plan."""
    pending: ScanPlan | None = None
    adopted_by: str = ""
    """The run that adopted the pending plan."""
    retired: bool = False
    generation: Generation | None = None
    binding: Binding | None = None
    """None before the first plan of a generation, and in checkpoints of earlier versions."""
    reset_at: int = -1
    """The sequence of the last reset: run keys of plans before it may be planned anew."""

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain values."""
        value: dict[str, Any] = {
            "position": None if self.position is None else self.position.to_json(),
            "pending": None if self.pending is None else self.pending.to_json(),
            "adopted_by": self.adopted_by,
            "retired": self.retired,
        }
        if self.binding is not None:
            value["binding"] = self.binding.to_json()
        if self.generation is not None:
            value["generation"] = self.generation.to_json()
            value["reset_at"] = self.reset_at
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CheckpointState:
        """Return the state from what `to_json` returned."""
        position, pending = value["position"], value["pending"]
        return cls(
            None if position is None else TablePosition.from_json(position),
            None if pending is None else ScanPlan.from_json(pending),
            plain.text(value["adopted_by"]),
            bool(value["retired"]),
            Generation.from_json(value.get("generation")),
            Binding.from_json(value.get("binding")),
            plain.number(value.get("reset_at", -1)),
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a checkpoint's history. It never changes."""

    name: str
    sequence: int
    kind: EventKind
    state: CheckpointState
    run_key: str = ""
    """The run of the plan; for `adopt`, the run that adopts it."""
    plan_id: str = ""
    nonce: str = ""
    """A new value for every attempt to claim a sequence, which identifies the attempt."""
    created_ms: int = -1
    receipt: Receipt | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """Reasons, lost ranges and the like, as plain values."""
    layers: tuple[PositionLayer, ...] = field(default=(), repr=False, compare=False)
    """What the records of a store have of the position, this event's at the end; empty for an event
    that no store has returned."""
    upon: Event | None = field(default=None, repr=False, compare=False)
    """For an event that is to be written, as the first one of its name: an event of another name,
    of the same store, whose position is nearly the same. Its record has what differs."""

    def _receipt_json(self) -> dict[str, Any] | None:
        if self.receipt is None:
            return None
        # The state contains the whole position already.
        value = replace(self.receipt, position=None).to_json()
        if self.receipt.rows_moved is None:
            del value["rows_moved"]
        return value

    def body(self, position: Mapping[str, Any] | None = None) -> bytes:
        """Return the content of the event, without its name, sequence, kind and nonce.

        Args:
            position: The change of the position, which is written instead of the whole one.
        """
        value = self._content(position)
        text = json.dumps(value, separators=(",", ":"))
        return zlib.compress(text.encode(), _COMPRESSION_LEVEL)

    def to_json(self) -> dict[str, Any]:
        """Return the whole event as plain values, for `export` and for people."""
        columns = {"name": self.name, "sequence": self.sequence, "kind": str(self.kind)}
        return {**columns, **self._content(None)}

    def _content(self, position: Mapping[str, Any] | None) -> dict[str, Any]:
        if position is None:
            # An earlier release would drop a generation that it does not know, so it must refuse.
            version = 1 if self.state.generation is None else 2
            state = self.state.to_json()
        else:
            version = EVENT_VERSION if "depth" in position else CHANGE_VERSION
            state = {**replace(self.state, position=None).to_json(), "position": position}
        return {
            "version": version,
            "run_key": self.run_key,
            "plan_id": self.plan_id,
            "created_ms": self.created_ms,
            "state": state,
            "receipt": self._receipt_json(),
            "details": dict(self.details),
        }


@contextmanager
def reading_record(name: str, sequence: Any) -> Iterator[None]:
    """Turn each error inside the block into one that says which event is damaged."""
    try:
        with plain.reading(f"event {sequence} of checkpoint '{name}'"):
            yield
    except zlib.error as error:
        raise CorruptDataError(
            f"event {sequence} of checkpoint '{name}' cannot be read: {error}"
        ) from error


def body_content(name: str, body: bytes) -> dict[str, Any]:
    """Return the content of a body. Call it within `reading_record`.

    A newer version, or a damaged body, is refused.
    """
    value = json.loads(_decompressed(body))
    check_version(value, name)
    return plain.mapping(value)


def event_of(columns: Mapping[str, Any], content: Mapping[str, Any]) -> Event:
    """Return the event from its columns and the content of its body, with a whole position."""
    return _event(
        content,
        name=columns["name"],
        sequence=int(columns["seq"]),
        kind=EventKind(columns["kind"]),
        nonce=columns["nonce"],
    )


def _event(value: Mapping[str, Any], name: str, **columns: Any) -> Event:
    state = CheckpointState.from_json(value["state"])
    receipt = None if value["receipt"] is None else Receipt.from_json(value["receipt"])
    if receipt is not None and state.position is not None:
        receipt = replace(receipt, position=state.position.offsets)
    return Event(
        name=name,
        state=state,
        run_key=plain.text(value["run_key"]),
        plan_id=plain.text(value["plan_id"]),
        created_ms=plain.number(value["created_ms"]),
        receipt=receipt,
        details=plain.mapping(value["details"]),
        **columns,
    )


def _decompressed(body: bytes) -> bytes:
    """Return the decompressed `body`, after a check of its size."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(body, BODY_BYTES_MAX)
    if unpacker.unconsumed_tail:
        raise ValueError(f"its body is larger than {BODY_BYTES_MAX} bytes")
    if not unpacker.eof:
        raise ValueError("its body ends too early")
    return text


def event_from_json(value: Mapping[str, Any]) -> Event:
    """Return the event from what `Event.to_json` returned."""
    with plain.reading("event of a checkpoint"):
        name = plain.text(value["name"])
        check_version(value, name)
        return _event(
            value,
            name=name,
            sequence=plain.number(value["sequence"]),
            kind=EventKind(value["kind"]),
            nonce=new_nonce(),
        )


def check_version(value: Mapping[str, Any], name: str) -> None:
    """Refuse an event that a newer release has written."""
    plain.check_version(value, EVENT_VERSION, f"an event of checkpoint '{name}'")


def check_checkpoint_name(name: str) -> str:
    """Return the name, or raise an error that says which names are valid."""
    if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise ConfigError(
            f"{name!r} cannot name a checkpoint: use 1 to {NAME_LENGTH_MAX} printable characters"
        )
    return name


def new_nonce() -> str:
    """Return a value that no other attempt has."""
    return secrets.token_hex(12)


def now_ms() -> int:
    """Return the time of this machine's clock. It is for people, and never decides anything."""
    return time.time_ns() // 1_000_000
