"""Where no overlay can be mounted the tree is a copy, and nothing else is different."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cursorbench.sandbox.bubblewrap import Bubblewrap
from cursorbench.sandbox.protocol import Environment, Limits


@pytest.fixture(scope="module")
def copying(backend: Bubblewrap) -> Iterator[Bubblewrap]:
    """A backend without overlays."""
    made = Bubblewrap(overlay=False)
    yield made
    made.close()


def test_the_same_patch(backend: Bubblewrap, copying: Bubblewrap, environment: Environment) -> None:
    change = (
        "echo three >> a.txt; rm -r src; mkdir -p new/deep; echo n > new/deep/n; chmod -x bin/tool; "
        "rm link; ln -s bin link; echo x > build.log"
    )
    with backend.start(environment) as overlay, copying.start(environment) as copy:
        assert copy.diff() == ""
        assert overlay.exec(change).ok
        assert copy.exec(change).ok
        assert copy.diff() == overlay.diff()
        with copy.fork() as fork:
            assert fork.diff() == overlay.diff()
            assert fork.exec("rm -r new; git --version > /dev/null; echo own > own").ok
            assert "+own" in fork.diff()
            with fork.fork() as child:
                assert child.exec("ls").output == "a.txt\nbin\nbuild.log\nlink\nown\n"
        assert "own" not in copy.diff()
    assert (environment.root / "src" / "a.py").exists()


def test_the_limit_is_for_what_is_written(copying: Bubblewrap, environment: Environment) -> None:
    (environment.root / "large").write_bytes(bytes(8 << 20))
    with copying.start(environment, Limits(disk=4 << 20)) as sandbox:
        assert sandbox.exec("head -c 3M /dev/zero > ok").ok
        assert "No space left" in sandbox.exec("head -c 3M /dev/zero > more").output


def test_what_is_said_of_it(backend: Bubblewrap, copying: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment):
        assert backend.describe()["trees"].startswith(("overlays", "copies ("))
    assert copying.describe()["trees"] == "copies (asked for)"
