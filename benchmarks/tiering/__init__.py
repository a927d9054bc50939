"""Tiering into Iceberg, and reading lake and log as one."""
