"""Fluss as components of Dagster: what `dg` finds and scaffolds."""

from fluss_orchestrate.dagster.components.connection import FlussConnectionComponent
from fluss_orchestrate.dagster.components.database import FlussDatabaseComponent

__all__ = ["FlussConnectionComponent", "FlussDatabaseComponent"]
