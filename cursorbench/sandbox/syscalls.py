"""The Linux calls that Python does not have: mounts, namespaces, ID-mapped mounts.

Used by the keeper (`keeper.py`), which makes the sandboxes' folders. Nothing here decides anything.
Numbers are those of the kernel's generic table, the same on x86-64 and arm64 (`mount_setattr(2)`).
"""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 2, 4, 32, 4096
MS_REC, MS_SLAVE, MS_SHARED = 16384, 1 << 19, 1 << 20
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE, _AT_EMPTY_PATH, _MOVE_MOUNT_F_EMPTY_PATH = 1, 0x1000, 4
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV, _ATTR_IDMAP = 0x1, 0x2, 0x4, 0x00100000
_AT_FDCWD = -100


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2). Raises OSError."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _checked(result, f"mount {kind or 'bind'} on {target}")


def unmount(target: str) -> None:
    """Take a mount out of sight, gone when its last user is."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH | UMOUNT_NOFOLLOW), f"unmount {target}")


def unshare(flags: int) -> None:
    """unshare(2). Raises OSError."""
    _checked(_libc.unshare(flags), "unshare")


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument. Raises OSError."""
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def bind_mapped(source: int, target: str, userns: int) -> None:
    """Bind the folder open as `source` read-only on `target`, owners mapped by the user namespace `userns`.

    Raises OSError where kernel or file system cannot (before 5.19, or a network file system).
    """
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH
    tree = _checked(_libc.syscall(_OPEN_TREE, source, b"", flags), "open_tree")
    try:
        wanted = _MountAttributes(_ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV | _ATTR_IDMAP, 0, 0, userns)
        size = ctypes.c_size_t(ctypes.sizeof(wanted))
        result = _libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(wanted), size)
        _checked(result, "mount_setattr")
        result = _libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, target.encode(), _MOVE_MOUNT_F_EMPTY_PATH)
        _checked(result, "move_mount")
    finally:
        os.close(tree)
