"""What a sandbox changed: its layers against the environment's folder, entry by entry, in the keeper.

Only what the layers name is read, so the cost follows the change and not the repository. The result goes
to the caller as a stream of records (`write`, `read`), who makes a patch of it (`patch.py`).
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from cursorbench.sandbox import tree

LARGEST = 64 << 20  # bytes of contents, before and after together
MOST = 50_000  # changed files
_HEADER = struct.Struct("<IIIqq?")


@dataclass(frozen=True)
class Change:
    """One path before and after; a mode is git's (0o100644, 0o100755, 0o120000), 0 where nothing is.

    `plain` says that no folder above it was a link before: only then can git be asked about the path.
    """

    path: bytes
    before_mode: int
    after_mode: int
    before: bytes
    after: bytes
    plain: bool


@dataclass
class _Node:
    """One entry of the layers laid over each other. `hides` means that nothing of the base shows below."""

    kind: int
    layer: int
    hides: bool = False
    children: dict[bytes, _Node] = field(default_factory=dict)


class _Reading:
    def __init__(self, root: int, layers: Sequence[int], whole: bool) -> None:
        self._whole = whole
        self._root = root
        self._layers = layers
        self._left = LARGEST
        # a whole tree has what is unchanged in it, too
        self._most = MOST + (tree.size(root)[1] if whole else 0)
        self._count = 0

    def overlay(self) -> _Node:
        top = _Node(stat.S_IFDIR, -1, self._whole)
        for number, layer in enumerate(self._layers):
            self._lay(top, layer, number, 0)
        return top

    def _lay(self, node: _Node, fd: int, number: int, depth: int) -> None:
        if depth > tree.DEEPEST:
            raise tree.TooLargeError(f"folders deeper than {tree.DEEPEST}")
        for name, found in tree.entries(fd):
            self._count += 1
            if self._count > self._most:
                raise tree.TooLargeError(f"more than {MOST} files changed")
            kind = 0 if tree.is_whiteout(found) else stat.S_IFMT(found.st_mode)
            if kind != stat.S_IFDIR:
                node.children[name] = _Node(kind, number, hides=True)
                continue
            there = node.children.get(name)
            with tree.still(tree.folder(name, fd)) as inner:
                if inner is None:
                    continue
                if there is None or there.kind != stat.S_IFDIR or tree.is_opaque(inner):
                    hides = self._whole or tree.is_opaque(inner) or (there is not None and there.hides)
                    there = node.children[name] = _Node(kind, number, hides)
                self._lay(there, inner, number, depth + 1)

    def compare(self, node: _Node, base: int | None, path: bytes, plain: bool) -> Iterator[Change]:
        names = set(node.children)
        if node.hides and base is not None:
            names |= {name for name, _ in tree.entries(base)}
        for name in sorted(names):
            inner = path + name
            child = node.children.get(name, _Node(0, -1, hides=True))
            found = _stat(name, base)
            was = stat.S_IFMT(found.st_mode) if found else 0
            if child.kind == stat.S_IFDIR:
                if was == stat.S_IFDIR:
                    with tree.folder(name, base) as fd:
                        yield from self.compare(child, fd, inner + b"/", plain)
                    continue
                yield from self._change(inner, name, base, None, plain)
                straight = plain and was != stat.S_IFLNK
                yield from self.compare(child, None, inner + b"/", straight)
            elif was == stat.S_IFDIR:
                with tree.folder(name, base) as fd:
                    yield from self.compare(_Node(stat.S_IFDIR, -1, hides=True), fd, inner + b"/", plain)
                yield from self._change(inner, name, None, child, plain)
            else:
                yield from self._change(inner, name, base, child, plain)

    def _change(
        self, path: bytes, name: bytes, base: int | None, node: _Node | None, plain: bool
    ) -> Iterator[Change]:
        if (
            self._whole
            and base is not None
            and node is not None
            and self._is_unchanged(path, name, base, node)
        ):
            return
        before_mode, before = self._side(name, base)
        after_mode, after = 0, b""
        if node is not None and node.kind in (stat.S_IFREG, stat.S_IFLNK):
            after_mode, after = self._walk_to(self._layers[node.layer], path.split(b"/"))
        if (before_mode, before) != (after_mode, after):
            yield Change(path, before_mode, after_mode, before, after, plain)

    def _is_unchanged(self, path: bytes, name: bytes, base: int, node: _Node) -> bool:
        """Whether a file is as it was, without counting it: of a whole tree most are."""
        *folders, _ = path.split(b"/")
        try:
            with contextlib.ExitStack() as stack:
                within = self._layers[node.layer]
                for folder in folders:
                    within = stack.enter_context(tree.folder(folder, within))
                before = stack.enter_context(tree.file(name, base))
                return tree.same(before, stack.enter_context(tree.file(name, within)))
        except OSError as error:
            tree.expect(error)
            return False

    def _walk_to(self, fd: int, parts: list[bytes]) -> tuple[int, bytes]:
        try:
            if len(parts) == 1:
                return self._side(parts[0], fd)
            with tree.folder(parts[0], fd) as inner:
                return self._walk_to(inner, parts[1:])
        except OSError as error:
            tree.expect(error)
            return 0, b""

    def _side(self, name: bytes, within: int | None) -> tuple[int, bytes]:
        found = _stat(name, within)
        if found is None or within is None:
            return 0, b""
        if stat.S_ISLNK(found.st_mode):
            return 0o120000, os.fsencode(os.readlink(name, dir_fd=within))
        if not stat.S_ISREG(found.st_mode):
            return 0, b""
        content = tree.content(name, within, self._left)
        self._left -= len(content)
        return (0o100755 if found.st_mode & 0o100 else 0o100644), content


def _stat(name: bytes, within: int | None) -> os.stat_result | None:
    if within is None:
        return None
    try:
        return os.stat(name, dir_fd=within, follow_symlinks=False)
    except FileNotFoundError:
        return None


def collect(root: int, layers: Sequence[int], whole: bool = False) -> Iterator[Change]:
    """What the layers, the undermost first, change of `root`; all are descriptors of folders.

    `whole` says that they hold the whole tree and not only what changed.

    Raises TooLargeError for more than LARGEST bytes, MOST files or too deep folders.
    """
    reading = _Reading(root, layers, whole)
    yield from reading.compare(reading.overlay(), root, b"", True)


def write(changes: Iterator[Change], out: BinaryIO) -> None:
    """Send changes; a reason why not is sent in place of the rest."""
    try:
        for change in changes:
            sizes = (len(change.before), len(change.after))
            modes = (change.before_mode, change.after_mode)
            out.write(_HEADER.pack(len(change.path), *modes, *sizes, change.plain))
            out.writelines((change.path, change.before, change.after))
        out.write(_HEADER.pack(0, 0, 0, 0, 0, False))
    except (tree.TooLargeError, OSError) as error:
        text = str(error).encode("utf-8", "replace")
        out.write(_HEADER.pack(0, 1, isinstance(error, OSError), len(text), 0, False) + text)


def read(source: BinaryIO) -> list[Change]:
    """Receive changes. Raises TooLargeError as the writer did, OSError when reading failed or broke off."""
    found: list[Change] = []
    while len(header := source.read(_HEADER.size)) == _HEADER.size:
        length, before_mode, after_mode, before, after, plain = _HEADER.unpack(header)
        if not length:
            if not before_mode:
                return found
            text = source.read(before).decode("utf-8", "replace")
            raise OSError(text) if after_mode else tree.TooLargeError(text)
        path, old, new = source.read(length), source.read(before), source.read(after)
        found.append(Change(path, before_mode, after_mode, old, new, plain))
    raise OSError("the keeper broke off")
