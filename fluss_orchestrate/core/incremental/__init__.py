"""Incremental scans: each run reads the new rows, once, and the same rows again after a crash."""

from fluss_orchestrate.core.incremental.planning.settings import LakeReader, ScanSettings
from fluss_orchestrate.core.incremental.reading.reader import PlanReading, ReadOptions, ScanProgress
from fluss_orchestrate.core.incremental.run import ScanRun
from fluss_orchestrate.core.incremental.scan import IncrementalScan
from fluss_orchestrate.core.incremental.time.intervals import IntervalScan

__all__ = [
    "IncrementalScan",
    "IntervalScan",
    "LakeReader",
    "PlanReading",
    "ReadOptions",
    "ScanProgress",
    "ScanRun",
    "ScanSettings",
]
