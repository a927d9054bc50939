"""Times as offsets: timestamps, commit times and intervals."""
