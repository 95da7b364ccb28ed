"""What a diff may not decide, and that nothing of this machine is taken for the base's."""

from __future__ import annotations

from pathlib import Path

import pytest

from cursorbench.graders import infrastructure, restoring
from cursorbench.graders.deciding import Deciding
from cursorbench.sandbox import open_backend
from cursorbench.sandbox.protocol import Environment
from tests.cursorbench.graders.forging import FILE, LIMITS, git, put


@pytest.mark.parametrize(
    ("path", "decides"),
    [
        ("shop/test_new/__init__.py", True),  # imported in place of a test that is new to the base
        ("shop/test_new.abi3.so", True),
        ("shop/test_own/__init__.py", False),
        ("_distutils_hack/__init__.py", True),  # imported by a .pth when Python starts
        ("__editable___shop_finder.py", True),
        ("grader/__main__.py", True),  # what the command starts
        ("shop/__main__.py", False),
        ("shop/grader.py", False),
    ],
)
def test_what_decides_in_a_task(tmp_path: Path, path: str, decides: bool) -> None:
    put(tmp_path, {"shop/__init__.py": "", "shop/core.py": "x = 1\n"})
    command = ("python", "-m", "grader.run", "-m", "shop", "--xml={report}")
    assert Deciding.of(tmp_path, {"shop/test_new.py"}, (".",), command)(path) is decides
    assert infrastructure.started(command) == {"grader", "shop"}


def test_links_and_what_is_below_them(tmp_path: Path) -> None:
    """A link to a folder is a package as well; and below a link of the base nothing is the base's: a file of
    this machine was put in the tree, where the tested code could read it."""
    root, outside = tmp_path / "base", tmp_path / "outside"
    for place in (tmp_path, tmp_path.parent):
        place.chmod(0o755)
    put(root, {FILE: "x = 1\n", "own/b.txt": "own\n"})
    put(outside, {"key.txt": "secret\n", "sub/key.txt": "secret\n"})
    for name, target in (("out", str(outside)), ("in", "../own")):
        (root / "tests" / name).symlink_to(target)
    git(root, "init", "-q")
    with open_backend().start(Environment(root), LIMITS) as sandbox:
        sandbox.exec("rm tests/out tests/in; mkdir -p tests/out/sub tests/in evil; ln -s evil random")
        below = ["tests/out/key.txt", "tests/out/sub/key.txt", "tests/in/b.txt"]
        for path in (*below, "evil/__init__.py"):
            sandbox.write(path, b"mine\n")
        touched = ["tests/out", "tests/in", "random", "evil/__init__.py", *below]
        restored = restoring.put_back(sandbox, root, touched, {FILE: b"x = 1\n"})
        assert restored == sorted([*touched[:3], *below])
        said = sandbox.exec("readlink tests/out tests/in; cat tests/out/key.txt own/b.txt; ls").output
        assert said.splitlines()[:2] == [str(outside), "../own"]
        assert "secret" not in said
        assert said.splitlines()[-4:] == ["own", "evil", "own", "tests"]
