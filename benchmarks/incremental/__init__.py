"""The incremental job end to end, its overhead, and its cost as tables grow wide."""
