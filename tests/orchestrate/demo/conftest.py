"""The demo starts many processes, and ends them."""

from tests.leftovers import no_process_is_left  # noqa: F401
