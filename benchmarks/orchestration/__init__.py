"""Sensors that wait, and what it costs to import an integration."""
