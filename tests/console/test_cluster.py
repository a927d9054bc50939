"""The console of a real cluster that other tests share: every page, and one action."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.console import test_actions, test_pages
from tests.console.place import Place


@pytest.fixture(scope="session")
def lake_kind() -> str:
    return "cluster"


def test_every_page_and_a_reset(place: Place, page: Page) -> None:
    test_pages.test_every_page_can_be_read_by_everybody(place, page, "light")
    test_actions.test_a_reset_says_what_it_does_and_records_why(place, page)
