"""Importing without blocking an event loop."""

from __future__ import annotations

import asyncio
import importlib
import sys
from types import ModuleType


async def loaded(module: str) -> ModuleType:
    """A module, imported on another thread: the client's first import takes a second or two."""
    found = sys.modules.get(module)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    return await asyncio.to_thread(importlib.import_module, module)
