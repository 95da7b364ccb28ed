"""A pristine working tree with a model's diff in it, and everything that decides how tests run as it was.

All of it happens before any of the model's code runs, so what the sandbox answers can be believed. Not
here: running the tests, the verdict (`correctness.py`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from cursorbench.errors import SandboxError
from cursorbench.graders import infrastructure, patch
from cursorbench.graders.deciding import Deciding
from cursorbench.sandbox.protocol import Sandbox

_CLEAN_GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": "1",  # the tree belongs to another user outside
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}
_NO_ATTRIBUTES = b"* -text -eol -ident -filter -working-tree-encoding\n"
_APPLY_S = 120.0
_NOT_OURS = (".git", "__pycache__", "node_modules", ".venv", "venv", "site-packages")
MAX_FILE = 64 << 20
LONGEST = 2000  # bytes of a path; one that fits inside by a hair fits nowhere below the tree on this machine
_WORDS = 60_000  # bytes of paths in one command


class PatchError(Exception):
    """The diff does not apply to the base; a grade, not a failure of ours."""


def apply(sandbox: Sandbox, diff: str) -> set[str]:
    """Apply a diff to the working tree; the paths it touches, as git and as its text name them.

    First byte by byte, for a model's diff is one of the bytes in its tree; where that fails as the tree's own
    attributes say (line ends, encodings, `ident`), for a commit's diff is one of what git has stored.

    Raises:
        PatchError: git refuses it, or it has a path longer than LONGEST.
        SandboxError: the sandbox died, or has no git.
    """
    if not diff.strip():
        return set()
    text = diff.encode("utf-8", "surrogateescape")
    text += b"" if text.endswith(b"\n") else b"\n"
    touched = _touched(_git_apply(sandbox, text, _CLEAN_GIT, "--numstat"), diff)
    if any(len(path.encode("utf-8", "replace")) > LONGEST for path in touched):
        raise PatchError(f"a path has more than {LONGEST} bytes")
    plain = f"/tmp/{secrets.token_hex(16)}"
    _do(sandbox, "git", "init", "-q", "--bare", "--template=", plain)
    _write(sandbox, f"{plain}/info/attributes", _NO_ATTRIBUTES)
    how = ("--binary", "--whitespace=nowarn")
    try:
        _git_apply(sandbox, text, _CLEAN_GIT | {"GIT_DIR": plain, "GIT_WORK_TREE": "."}, *how)
    except PatchError:
        _git_apply(sandbox, text, _CLEAN_GIT, *how)
    _do(sandbox, "rm", "-rf", plain)
    return touched


def _touched(numstat: str, diff: str) -> set[str]:
    rows = (row.split("\t", 2) for row in numstat.split("\n") if row.count("\t") >= 2)
    touched = {patch.unquoted(row[2], "surrogateescape") for row in rows}
    for change in patch.files(diff):
        touched |= {change.path, change.old} - {""}
    return touched


def _git_apply(sandbox: Sandbox, text: bytes, variables: Mapping[str, str], *options: str) -> str:
    done = sandbox.exec(["git", "apply", *options, "-"], stdin=text, variables=variables, timeout_s=_APPLY_S)
    if done.ended == "sandbox_died" or (done.ended == "exited" and done.status in (126, 127)):
        raise SandboxError(
            "the diff could not be applied", hint=f"is git in the sandbox? {done.output[-300:]}"
        )
    if not done.ok:
        raise PatchError(done.output[-500:].strip() or done.ended)
    return done.output


def put_back(
    sandbox: Sandbox,
    root: Path,
    touched: Iterable[str],
    tests: Mapping[str, bytes],
    removed: Iterable[str] = (),
    imports: Iterable[str] = (),
    command: Iterable[str] = (),
) -> list[str]:
    """Make everything that decides how tests run as it was, and put the tests in place.

    Args:
        root: the pristine tree, on the host.
        touched: paths that the diff may have changed.
        tests: the test files, by path in the working tree.
        removed: test files that are not to be there.
        imports: folders on Python's import path.
        command: what runs the tests; a base's file that a word of it names decides too.

    Returns:
        Paths that the diff had changed and that are the base's again, sorted; a test file in place too.

    Raises:
        SandboxError: a file could not be put back.
    """
    paths = set(touched)
    named = sorted({*paths, *_deciding(root)} - set(tests))
    linked = _linked(sandbox, named)
    doubtful = _doubtful(named, linked, Deciding.of(root, tests, imports, [*command]))
    linked |= {path for path in doubtful if not path.isprintable()}
    _clear_above(sandbox, root, doubtful)
    changed = [path for path in doubtful if _differs(sandbox, root, path, path in linked)]
    _restore(sandbox, root, changed)
    wrong = [
        path
        for path, content in tests.items()
        if path in paths
        or paths & {str(folder) for folder in PurePosixPath(path).parents}
        or _inside(sandbox, path) != content
    ]
    _free(sandbox, root, [*wrong, *removed])
    for path in wrong:
        _write(sandbox, path, tests[path])
    make_programs(sandbox, tests)
    return sorted({_shown(path) for path in [*changed, *(paths & set(tests))]})


def _doubtful(named: Iterable[str], linked: Collection[str], decides: Deciding) -> list[str]:
    """Those of the paths that may decide; a link may be a package."""
    return [path for path in named if decides(path) or (path in linked and decides(f"{path}/__init__.py"))]


def _shown(path: str) -> str:
    """A path that can be printed, whatever bytes a model put into it."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def make_programs(sandbox: Sandbox, tests: Mapping[str, bytes]) -> None:
    """Scripts among the test files can be run: a task keeps their bytes, and no modes.

    Raises:
        SandboxError: as `put_back`.
    """
    scripts = [path for path, content in tests.items() if content.startswith(b"#!")]
    _each(sandbox, 'if [ -f "$f" ]; then chmod 755 "$f"; fi', scripts)


def _deciding(root: Path) -> Iterator[str]:
    """The base's conftests and configuration, whatever is said of what the diff touched."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _NOT_OURS]
        relative = PurePosixPath(os.path.relpath(folder, root))
        for name in files:
            if name in infrastructure.SHARED or name in infrastructure.NAMES:
                yield str(relative / name)


def _differs(sandbox: Sandbox, root: Path, path: str, linked: bool) -> bool:
    base, now = _host(root, path), _inside(sandbox, path)
    if base == now and not linked and not (root / path).is_symlink():
        return False
    name = PurePosixPath(path).name
    if name in infrastructure.SHARED and not linked:
        return not infrastructure.same_settings(name, base, now)
    return True


def _host(root: Path, path: str) -> bytes | None:
    """A base file's bytes; None when there is none, or it is a folder."""
    found = root / path
    is_file = found.is_file() and not found.is_symlink() and _is_in_the_base(root, path)
    return found.read_bytes() if is_file else None


def _is_in_the_base(root: Path, path: str) -> bool:
    """Whether no folder above it is a link: git has nothing below one, and it may lead anywhere on this
    machine, of whose files none is the base's."""
    return not any((root / folder).is_symlink() for folder in PurePosixPath(path).parents[:-1])


def _inside(sandbox: Sandbox, path: str) -> bytes | None:
    try:
        return sandbox.read(path, MAX_FILE)
    except (OSError, ValueError):
        return None


def _linked(sandbox: Sandbox, paths: Sequence[str]) -> set[str]:
    said = _each(sandbox, 'if [ -L "$f" ]; then printf "%s\\0" "$f"; fi', paths)
    return {path.removeprefix("./") for path in said.split("\0")}


def _restore(sandbox: Sandbox, root: Path, paths: Sequence[str]) -> None:
    """The base's files, links or nothing in the place of what is there."""
    _free(sandbox, root, paths)
    had = [path for path in paths if _is_in_the_base(root, path)]
    for path in had:
        base = root / path
        if base.is_symlink():
            _do(sandbox, "mkdir", "-p", f"./{PurePosixPath(path).parent}")
            _do(sandbox, "ln", "-sfn", "--", str(base.readlink()), f"./{path}")
        elif base.is_file():
            _write(sandbox, path, base.read_bytes())
    programs = [path for path in had if (root / path).is_file() and os.access(root / path, os.X_OK)]
    _each(sandbox, 'if [ -f "$f" ]; then chmod 755 "$f"; fi', programs)


def _free(sandbox: Sandbox, root: Path, paths: Sequence[str]) -> None:
    """Remove what stands at paths, and links or files where they need folders.

    A folder of the base stays: its files are put back one by one.
    """
    _clear_above(sandbox, root, paths)
    kept = {path for path in paths if (root / path).is_dir() and not (root / path).is_symlink()}
    _all(sandbox, 'rm -rf "$@"', [path for path in paths if path not in kept])


def _clear_above(sandbox: Sandbox, root: Path, paths: Sequence[str]) -> None:
    above = {str(folder) for path in paths for folder in PurePosixPath(path).parents} - {"."}
    ordered = sorted(above, key=lambda path: (path.count("/"), path))
    ours = [path for path in ordered if not (root / path).is_symlink()]
    _each(sandbox, 'if [ -L "$f" ] || [ -f "$f" ]; then rm -f "$f"; fi', ours)


def _each(sandbox: Sandbox, script: str, paths: Sequence[str]) -> str:
    """Run a line of shell for each path, as "$f"; not one that starts a program whatever the path is."""
    return _all(sandbox, f"for f; do {script} || exit 1; done", paths)


def _all(sandbox: Sandbox, script: str, paths: Sequence[str]) -> str:
    """Run a line of shell with paths as "$@", never as options; many in one command.

    A model chooses how many paths there are: a command, or a program, for each of 50,000 would take longer
    than a trial may.
    """
    said: list[str] = []
    some: list[str] = []
    left = _WORDS
    for path in [*paths, ""]:
        left -= len(path.encode("utf-8", "surrogateescape")) + 3
        if some and (not path or left < 0):
            said.append(_do(sandbox, "sh", "-c", script, "sh", *some))
            some, left = [], _WORDS
        some.append(f"./{path}")
    return "".join(said)


def _write(sandbox: Sandbox, path: str, content: bytes) -> None:
    try:
        sandbox.write(path, content)
    except OSError as error:
        raise SandboxError(f"{path} could not be put in place: {error}") from error


def _do(sandbox: Sandbox, *command: str) -> str:
    done = sandbox.exec([command[0], *command[1:]], timeout_s=_APPLY_S)
    if not done.ok:
        raise SandboxError(f"{' '.join(command)[:200]} failed in the sandbox", hint=done.output[-300:])
    return done.output
