"""Key tables in the lake: tiering their changes, and reading lake and changelog as one."""
