"""A real Fluss cluster, over its wire protocol."""
