"""What the operating system and SQLite refuse becomes the user's error; what a library makes up does not."""

from __future__ import annotations

import errno
import os
import sqlite3

import pytest

from stages.errors import DependencyDownError, classified, of_system
from stages.registry.schema import explain


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, 13),
        (errno.EROFS, 13),
        (errno.EACCES, 13),
        (errno.EIO, 13),
        (errno.ENOENT, 2),
        (errno.EISDIR, 2),
        (errno.ENOTDIR, 2),
    ],
)
def test_the_system_refuses(number: int, code: int) -> None:
    known = of_system(OSError(number, os.strerror(number), "/some/path"))
    assert known is not None
    assert (known.code, "/some/path" in known.message) == (code, True)
    assert known.hint


def test_an_error_without_a_number_stays_what_it_is() -> None:
    assert of_system(OSError("the model has no tokenizer")) is None
    with pytest.raises(OSError, match="no tokenizer"), classified():
        raise OSError("the model has no tokenizer")


def test_a_registry_that_cannot_be_written_is_no_damage() -> None:
    error = sqlite3.OperationalError("attempt to write a readonly database")
    assert isinstance(explain(error), DependencyDownError)
