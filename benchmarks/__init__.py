"""Benchmarks: ours beside the official client and beside the limit, in one run."""
