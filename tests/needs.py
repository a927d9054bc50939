"""What to do when this machine lacks something that a test needs."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def unavailable(reason: str) -> NoReturn:
    """Skip the test and say why; where CI=true it fails instead, so that nothing goes untested."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have this: {reason}", pytrace=False)
    pytest.skip(reason)


def chromium() -> str:
    """A real browser's program."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found is not None:
            return found
    unavailable("no Chromium is here: install your system's package for it")
