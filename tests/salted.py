"""Canaries whose users are drawn by a salt that a test names.

A salt is drawn at random. One in a thousand puts so many users into one arm that the sample-ratio check
concludes nothing (p < 0.001), and of twelve users all are in one arm in one of two thousand: what a test says
of its arms must not hang on that.

As a program, `python -m tests.salted SALT ARGUMENTS` is `rtrl ARGUMENTS`.
"""

from __future__ import annotations

import runpy
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

from stages.registry import deployments
from tests import processes

SALT_BYTES = 8


@contextmanager
def drawn_by(salt: str) -> Iterator[None]:
    """Deployments that this process begins meanwhile have this salt."""

    def token_hex(size: int) -> str:
        return salt if size == SALT_BYTES else secrets.token_hex(size)

    with mock.patch.object(deployments, "secrets", SimpleNamespace(token_hex=token_hex)):
        yield


def rtrl(salt: str, *arguments: str) -> processes.Done:
    """As `processes.rtrl`."""
    return processes.python("tests.salted", salt, *arguments)


def main() -> None:
    """`rtrl`, with the salt before its arguments."""
    with drawn_by(sys.argv.pop(1)):
        runpy.run_module("rtrl_cli.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
