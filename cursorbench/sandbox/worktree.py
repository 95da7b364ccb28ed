"""The working tree of a sandbox: an overlay over the environment's folder, or a copy of it.

A copy is made where overlays cannot be: an ordinary user before Linux 5.11, root before 5.19 (owners of the
layers below cannot be mapped), an environment on a file system that cannot be below an overlay. It costs
time and memory by the size of the tree; everything else is the same.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from cursorbench.sandbox import changes, layers, syscalls, tree
from cursorbench.sandbox.boxes import Box
from cursorbench.sandbox.stage import Store

_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV


def attach(store: Store, box: Box, request: dict[str, Any]) -> None:
    """Put the working tree in its place; it arrives inside by propagation.

    A first overlay that cannot be mounted makes all trees of this keeper copies.
    """
    box.layers, box.root = request["layers"], request["root"]
    store.use(box.layers, 1)
    if request["overlay"] and store.overlays:
        try:
            _overlay(store, box)
            return
        except FileNotFoundError:  # a folder that went meanwhile says nothing of overlays
            raise
        except OSError as error:
            store.overlays, store.why_not = False, str(error)
    box.whole = True
    _copy(store, box, request["disk"], request["inodes"])


def _overlay(store: Store, box: Box) -> None:
    lowers = []
    for place, layer in enumerate(box.layers):
        with tree.folder(store.layer(layer)) as fd:
            lowers.append(_lower(store, box, fd, f"layer{place}", (0, 0)))
    with store.host(box.root) as root:
        found = os.fstat(root)
        lowers.append(_lower(store, box, root, "lower", (found.st_uid, found.st_gid)))
    Path(box.folder, "disk/upper").chmod(found.st_mode & 0o777 | 0o700)
    disk = f"{box.folder}/disk"
    options = f"lowerdir={':'.join(lowers)},upperdir={disk}/upper,workdir={disk}/overlay"
    options += ",index=off,metacopy=off,redirect_dir=nofollow"
    if os.geteuid():
        options += ",userxattr"
    box.mount("overlay", "work", "overlay", _FLAGS, options)


def _lower(store: Store, box: Box, fd: int, place: str, owner: tuple[int, int]) -> str:
    target = f"{box.folder}/{place}"
    Path(target).mkdir()
    if os.geteuid() == 0:
        syscalls.bind_mapped(fd, target, store.owners(*owner, box.uid))
    else:
        syscalls.mount(f"/proc/self/fd/{fd}", target, "", syscalls.MS_BIND)
    box.mounted.append(target)
    return target


@contextlib.contextmanager
def _root(store: Store, path: str) -> Iterator[int]:
    """The environment's folder, to be read."""
    with store.host(path) as place, tree.folder(f"/proc/self/fd/{place}/.") as fd:
        yield fd


def _copy(store: Store, box: Box, disk: int, inodes: int) -> None:
    """Copy the tree, or the layer that a fork starts from, and add its size to the disk's."""
    with contextlib.ExitStack() as stack:
        if box.layers:
            source = stack.enter_context(tree.folder(store.layer(box.layers[0])))
        else:
            source = stack.enter_context(_root(store, box.root))
        size, count = tree.size(source)
        options = f"size={disk + size},nr_inodes={inodes + count}"
        syscalls.mount("tmpfs", f"{box.folder}/disk", "tmpfs", syscalls.MS_REMOUNT | _FLAGS, options)
        layers.Merge(box.upper, None, box.uid if os.geteuid() == 0 else None).add(source)
        os.fchmod(box.upper, os.fstat(source).st_mode & 0o777 | 0o700)
    box.mount(f"{box.folder}/disk/upper", "work", "", syscalls.MS_BIND)


def freeze(store: Store, box: Box, number: int) -> None:
    """Copy what a sandbox changed, and what it was forked from, as layer `number`."""
    Path(store.layer(number)).mkdir()
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(tree.folder(store.layer(number)))
        base = None if box.whole else stack.enter_context(tree.folder(f"{box.folder}/lower"))
        merge = layers.Merge(target, base, 0 if os.geteuid() == 0 else None)
        for layer in [] if box.whole else reversed(box.layers):
            with tree.folder(store.layer(layer)) as source:
                merge.add(source)
        merge.add(box.upper)


def send_changes(store: Store, box: Box, out: BinaryIO) -> None:
    """Send what a sandbox changed against its environment."""
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(_root(store, box.root))
        below = [] if box.whole else reversed(box.layers)
        opened = [stack.enter_context(tree.folder(store.layer(layer))) for layer in below]
        changes.write(changes.collect(root, [*opened, box.upper], box.whole), out)
