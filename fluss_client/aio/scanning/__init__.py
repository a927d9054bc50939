"""Scans: fetch logs, decode batches, and give records or Arrow tables."""
