"""Loads what stands in `defs/`."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """Every component below this folder."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
