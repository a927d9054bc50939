"""Lake snapshots, tiering and producer offsets of the embedded engine."""
