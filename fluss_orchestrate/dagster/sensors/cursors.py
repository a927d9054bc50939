"""Cursors of sensors: versioned JSON. One that cannot be read is begun anew, never an error."""

from __future__ import annotations

import json
from typing import Any

CURSOR_VERSION = 1


def read_cursor(text: str | None, kind: str) -> dict[str, Any]:
    """What a sensor kept; empty for none, for another kind's and for a newer version's."""
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    if not isinstance(value, dict) or value.get("version") != CURSOR_VERSION:
        return {}
    kept = value.get("kept") if value.get("kind") == kind else None
    return kept if isinstance(kept, dict) else {}


def write_cursor(kind: str, kept: dict[str, Any]) -> str:
    """The cursor's text, equal for equal content."""
    return json.dumps({"version": CURSOR_VERSION, "kind": kind, "kept": kept}, sort_keys=True)
