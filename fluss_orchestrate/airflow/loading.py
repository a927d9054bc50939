"""Importing without blocking an event loop."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from types import ModuleType

_one_at_a_time = threading.Lock()


async def loaded(module: str) -> ModuleType:
    """A module, imported on another thread: the client's first import takes a second or two."""
    found = sys.modules.get(module)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    return await asyncio.to_thread(_import, module)


def _import(module: str) -> ModuleType:
    # Two threads in one package would wait for each other's modules, and Python then gives one
    # of them a module that is not whole. A triggerer starts many triggers at once.
    with _one_at_a_time:
        return importlib.import_module(module)
