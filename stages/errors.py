"""Errors only the stages raise. Base classes and the shared ones are in `cursorbench/errors.py`."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from cursorbench.errors import (
    DependencyDownError,
    InputMissingError,
    IntegrityError,
    RtrlError,
    UsageError,
)

__all__ = [
    "DependencyDownError",
    "GateRejectedError",
    "InconclusiveError",
    "InputMissingError",
    "IntegrityError",
    "LockedError",
    "RtrlError",
    "StoreError",
    "UsageError",
    "classified",
]


class GateRejectedError(RtrlError):
    """The gate found a significant regression, or nothing that passed may be deployed."""

    code = 3
    kind = "gate_rejected"


class InconclusiveError(RtrlError):
    """The data does not decide yet: keep waiting."""

    code = 4
    kind = "inconclusive"


class StoreError(RtrlError):
    """The store is missing, or its schema is not this program's."""

    code = 10
    kind = "store"


class LockedError(RtrlError):
    """Another run holds the lock. The message names the holder."""

    code = 11
    kind = "locked"


@contextmanager
def classified() -> Iterator[None]:
    """Errors of the machine within become the user's; bugs pass as they are."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DependencyDownError(
                "the disk of the store is full", hint="free space (`rtrl gc`) and run again"
            ) from error
        raise
