"""The patch of a sandbox: applied with git it gives the sandbox's tree, whatever a model has put there."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cursorbench.sandbox import changes, patch
from cursorbench.sandbox.bubblewrap import Bubblewrap
from cursorbench.sandbox.link import supervisor_python
from cursorbench.sandbox.protocol import Environment, Limits, Sandbox

_NAMES = st.sampled_from(["a", "b", "c d", 'q"uote', "tab\t", "new\nline", "ü", "\\", "-x", "@{", "..x"])
_CONTENTS = st.one_of(
    st.sampled_from([b"", b"\n", b"one\ntwo\n", b"one\r\ntwo", b"no end", b"\xff\xfe latin \xe9\n", b"a\0b"]),
    st.binary(max_size=60),
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "ignore")),
)
# a file is (content, executable), a link is (target, None)
_FILES = st.one_of(
    st.tuples(_CONTENTS, st.booleans()),
    st.tuples(st.sampled_from([b"a", b"../b", b"/etc/passwd", b"nowhere"]), st.none()),
)
_TREES = st.recursive(
    st.dictionaries(_NAMES, _FILES, max_size=4),
    lambda inner: st.dictionaries(_NAMES, st.one_of(_FILES, inner), max_size=4),
    max_leaves=10,
)
_WRITE = """
import base64, json, os, shutil, sys
for name in os.listdir("."):
    shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.unlink(name)
for path, content, mode in json.loads(sys.stdin.read()):
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    content = base64.b64decode(content)
    if mode is None:
        os.symlink(content, os.fsencode(path))
    else:
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, 0o755 if mode else 0o644)
"""
Flat = dict[str, tuple[bytes, bool | None]]


def flat(tree: dict[str, object], prefix: str = "") -> Flat:
    """Paths and what is there; empty folders, which git does not know, are not."""
    found: Flat = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}/")
        else:
            found[prefix + name] = value  # type: ignore[assignment]
    return found


def on_disk(folder: Path) -> Flat:
    """The same of a folder."""
    found: Flat = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = (os.fsencode(path.readlink()), None)
        elif path.is_file():
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


def put(folder: Path, files: Flat) -> None:
    """Make a folder of it."""
    for name, (content, mode) in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode is None:
            path.symlink_to(os.fsdecode(content))
        else:
            path.write_bytes(content)
            path.chmod(0o755 if mode else 0o644)


def become(sandbox: Sandbox, files: Flat) -> None:
    """Replace everything in a sandbox, from inside."""
    rows = [
        [name, base64.b64encode(content).decode(), mode] for name, (content, mode) in sorted(files.items())
    ]
    done = sandbox.exec([supervisor_python()[0], "-c", _WRITE], stdin=json.dumps(rows).encode())
    assert done.ok, done.output


def applied(patch: str, base: Path, scratch: Path) -> Flat:
    """What `git apply --binary` makes of a copy of the base."""
    tree = scratch / "applied"
    shutil.copytree(base, tree, symlinks=True)
    if patch:
        command = ["git", "apply", "--binary", "--whitespace=nowarn", "-"]
        done = subprocess.run(command, cwd=tree, input=patch.encode(), capture_output=True, check=False)
        assert done.returncode == 0, (done.stderr, patch)
    return on_disk(tree)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(before=_TREES, after=_TREES, last=_TREES)
def test_the_patch_applied_is_the_tree(
    backend: Bubblewrap,
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[str, object],
    after: dict[str, object],
    last: dict[str, object],
) -> None:
    scratch = tmp_path_factory.mktemp("patch")
    base = scratch / "base"
    base.mkdir()
    put(base, flat(before))
    with backend.start(Environment(base)) as sandbox:
        become(sandbox, flat(after))
        assert applied(sandbox.diff(), base, scratch / "first") == flat(after)
        with sandbox.fork() as fork:
            assert fork.diff() == sandbox.diff()
            become(fork, flat(last))
            assert applied(fork.diff(), base, scratch / "second") == flat(last)
    shutil.rmtree(scratch)


def blob(content: bytes) -> str:
    """git's id of a file."""
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()


def test_by_hand(backend: Bubblewrap, environment: Environment) -> None:
    old, new = blob(b"one\ntwo\n"), blob(b"one\ntwo\nthree\n")
    with backend.start(environment) as sandbox:
        assert sandbox.diff() == ""
        assert sandbox.exec("touch a.txt; chmod +x a.txt; chmod -x a.txt; cat a.txt > /tmp/a").ok
        assert sandbox.diff() == ""
        assert sandbox.exec("echo three >> a.txt").ok
        assert sandbox.diff().splitlines() == [
            "diff --git a/a.txt b/a.txt",
            f"index {old}..{new} 100644",
            "--- a/a.txt",
            "+++ b/a.txt",
            "@@ -1,2 +1,3 @@",
            " one",
            " two",
            "+three",
        ]


def test_what_is_left_out(backend: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment) as sandbox:
        command = (
            "mkdir -p .git/hooks sub/.GIT __pycache__ .pytest_cache; touch .git/hooks/x sub/.GIT/config "
            "__pycache__/a.pyc .pytest_cache/y build.log; mkfifo pipe; echo '!*.log' > .gitignore"
        )
        assert sandbox.exec(command).ok
        named = [line for line in sandbox.diff().splitlines() if line.startswith("diff ")]
    assert named == ["diff --git a/.gitignore b/.gitignore"]


def test_nothing_of_the_models_git_runs(
    backend: Bubblewrap, environment: Environment, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=environment.root, check=True)
    tmp_path.chmod(0o777)
    with backend.start(environment) as sandbox:
        made = tmp_path / "made"
        lines = f'[diff "x"]\n\ttextconv = touch {made};cat\n\tcommand = touch {made}\n'
        sandbox.write(".git/config", f"[core]\n\tfsmonitor = touch {made}\n{lines}".encode())
        sandbox.write(".gitattributes", b"* diff=x\n")
        sandbox.write("a.txt", b"changed\n")
        assert "+changed" in sandbox.diff()
    assert not made.exists()


def test_too_much(backend: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment, Limits()) as sandbox:
        assert sandbox.exec("truncate -s 1T big").ok
        with pytest.raises(ValueError, match="larger"):
            sandbox.diff()
        assert sandbox.exec("rm big; for i in $(seq 300); do mkdir d && cd d; done").ok
        with pytest.raises(ValueError, match="deeper"):
            sandbox.diff()
        with pytest.raises(ValueError, match="deeper"):
            sandbox.fork()
        assert sandbox.exec("rm -r d").ok
        assert sandbox.diff() == ""


@pytest.mark.parametrize("name", [":(foo)x", ":(glob)x", ":!x", ":^x", ":/x", ":"])
def test_names_that_git_takes_for_instructions(tmp_path: Path, name: str) -> None:
    """The patch of such a file failed, and with it the trial: as infrastructure, which has no grade."""
    (tmp_path / ".gitignore").write_text("*.log\n")
    found = [changes.Change(path.encode(), 0, 0o100644, b"", b"1\n", True) for path in (name, f"{name}.log")]
    made = patch.make(found, tmp_path)
    assert f"+++ b/{name}\n" in made
    assert ".log" not in made


def test_the_mark_of_a_replaced_folder_is_not_the_models_to_set(
    backend: Bubblewrap, environment: Environment
) -> None:
    with backend.start(environment) as sandbox:
        done = sandbox.exec(
            [supervisor_python()[0], "-I", "-c", "import os; os.setxattr('src', 'user.overlay.opaque', b'y')"]
        )
        assert done.ok or "not supported" in done.output or "not permitted" in done.output
        assert sandbox.diff() == ""


def test_git_is_asked_as_often_for_many_new_files_as_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    run = subprocess.run

    def counted(line: list[str], **more: object) -> object:
        asked.append(line)
        return run(line, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", counted)
    (tmp_path / ".gitignore").write_text("*.log\n")
    made = [f"late{n}.txt" for n in range(30)] + [f"late{n}.log" for n in range(30)]
    new = [changes.Change(name.encode(), 0, 0o100644, b"", b"x\n", True) for name in made]
    found = patch.make(new, tmp_path)
    assert found.count("diff --git") == 30
    assert ".log" not in found
    assert len(asked) <= 3  # what is ignored, both trees, the comparison
