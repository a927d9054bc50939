"""Mirrors: sinks that are kept equal to a key table, and the proof that they are."""
