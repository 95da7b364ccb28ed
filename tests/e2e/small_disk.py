"""A disk that really is full: a tmpfs of a few hundred kilobytes, or a note that none can be made."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(mount_point: Path, kilobytes: int) -> Iterator[Path]:
    """An empty file system of `kilobytes` at `mount_point`. Needs the right to mount.

    Skips without that right, except with CI=true, where it fails.
    """
    mount_point.mkdir(parents=True, exist_ok=True)
    options = ["-o", f"size={kilobytes}k,mode=700", "tmpfs", str(mount_point)]
    done = subprocess.run(["mount", "-t", "tmpfs", *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if os.environ.get("CI") == "true":
            pytest.fail(f"cannot mount a tmpfs: {done.stderr}")
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], check=True)


@contextmanager
def read_only(mount_point: Path) -> Iterator[None]:
    """The file system at `mount_point` takes nothing for a block, as after an error of the disk."""

    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(mount_point)], check=True)

    remount("ro")
    try:
        yield
    finally:
        remount("rw")


@contextmanager
def filled(folder: Path, leave: int = 0) -> Iterator[None]:
    """No room on the disk of `folder` but about `leave` bytes, for the length of the block."""
    ballast = folder / ".ballast"
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    size = 0
    try:
        for step in (65_536, 4096):
            try:
                while True:
                    size += os.write(fd, bytes(step))
            except OSError:
                pass
        os.ftruncate(fd, max(0, os.fstat(fd).st_size - leave))
        yield
    finally:
        os.close(fd)
        ballast.unlink()
