"""Sensors for offsets, partitions and lake snapshots."""
