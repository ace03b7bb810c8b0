"""Hypothesis for these tests: no deadlines, which a busy machine would miss."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
