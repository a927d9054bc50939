"""Mirrors of a key table in PostgreSQL and in Iceberg."""
