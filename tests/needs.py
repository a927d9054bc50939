"""What to do when this machine lacks something that a test needs."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def unavailable(reason: str) -> NoReturn:
    """Skip the test and say why; where CI=true it fails instead, so that nothing goes untested."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have this: {reason}", pytrace=False)
    pytest.skip(reason)
