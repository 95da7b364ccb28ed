"""Attempts to be graded as right without being right."""

from __future__ import annotations

from escapes.world import Attempt

ATTEMPTS: list[Attempt] = []
