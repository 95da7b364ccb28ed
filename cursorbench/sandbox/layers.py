"""Copies of what a sandbox changed, in the format of overlay layers.

A layer is a folder of changed files; a deleted file is a character device 0/0, a replaced folder carries
the mark "opaque". Names in it were chosen by a model: nothing here follows a link.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")


def is_whiteout(found: os.stat_result) -> bool:
    """Whether an entry says "deleted"."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(path: Path | int) -> bool:
    """Whether a folder hides what the layers below have in it."""
    for name in OPAQUE:
        with contextlib.suppress(OSError):
            if os.getxattr(path, name) in (b"y", b"x"):
                return True
    return False


def merge(source: Path, target: Path) -> None:
    """Lay the layer `source` over the layer `target`. Sockets and pipes are left out."""
    for entry in os.scandir(source):
        place = target / entry.name
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            _merge_folder(Path(entry.path), place, found)
            continue
        _remove(place)
        if is_whiteout(found):
            os.mknod(place, stat.S_IFCHR | 0o600, 0)
        elif stat.S_ISLNK(found.st_mode):
            place.symlink_to(Path(entry.path).readlink())
        elif stat.S_ISREG(found.st_mode):
            shutil.copyfile(entry.path, place, follow_symlinks=False)
            shutil.copystat(entry.path, place, follow_symlinks=False)


def _merge_folder(source: Path, place: Path, found: os.stat_result) -> None:
    opaque = is_opaque(source)
    if opaque or not (place.is_dir() and not place.is_symlink()):
        existed = place.is_symlink() or place.exists()
        _remove(place)
        place.mkdir()
        if opaque or existed:
            for name in OPAQUE:
                with contextlib.suppress(OSError):
                    os.setxattr(place, name, b"y")
                    break
    merge(source, place)
    place.chmod(stat.S_IMODE(found.st_mode))


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def give(folder: Path, uid: int, gid: int) -> None:
    """Make everything in a layer belong to `uid` and `gid`."""
    os.chown(folder, uid, gid, follow_symlinks=False)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(parent, name), uid, gid, follow_symlinks=False)
