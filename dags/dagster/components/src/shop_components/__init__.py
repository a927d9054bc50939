"""A shop's tables as assets, from YAML alone."""
