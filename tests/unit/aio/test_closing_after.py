"""The error of a `with` block is raised, even if closing fails afterwards."""

from __future__ import annotations

import pytest

from fluss_client.aio.connection import closing_after
from fluss_client.errors import WriteError


def test_an_error_at_closing_is_a_note_on_the_body_s_own() -> None:
    own = ValueError("the user's")
    with closing_after(own):
        raise WriteError("3 rows were not written")
    assert own.__notes__ == ["closing failed as well: 3 rows were not written"]


def test_without_one_it_is_raised() -> None:
    with pytest.raises(WriteError, match="3 rows"), closing_after(None):
        raise WriteError("3 rows were not written")
