"""Checking and vacuuming the directory of an embedded engine."""
