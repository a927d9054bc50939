"""The state of key tables."""
