"""Point and prefix look-ups in primary-key tables."""
