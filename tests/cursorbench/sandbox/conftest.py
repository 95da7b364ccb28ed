"""One backend for the tests of a worker; skipped where this machine makes no sandboxes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cursorbench.errors import SandboxError
from cursorbench.sandbox.bubblewrap import Bubblewrap
from cursorbench.sandbox.protocol import Environment

TREE = {
    "a.txt": "one\ntwo\n",
    "bin/tool": "#!/bin/sh\necho tool\n",
    "src/a.py": "x = 1\n",
    "src/deep/b.py": "y = 2\n",
    ".gitignore": "*.log\n",
}


@pytest.fixture(scope="session")
def backend() -> Iterator[Bubblewrap]:
    """bubblewrap, its battery passed."""
    try:
        made = Bubblewrap()
        made.probe()
    except SandboxError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    yield made
    made.close()


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A small tree with a link and a program."""
    root = tmp_path / "root"
    for name, content in TREE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    (root / "bin" / "tool").chmod(0o755)
    (root / "link").symlink_to("src")
    return Environment(root)
