"""Operators for Apache Fluss. `fluss_orchestrate.airflow` lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import names_of_parent

if TYPE_CHECKING:
    from fluss_orchestrate.airflow import *  # noqa: F403

__getattr__ = names_of_parent(__name__)
