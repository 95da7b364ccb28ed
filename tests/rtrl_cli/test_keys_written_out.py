"""A secret is in force once it was written out: who did not get it still has the one before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stages.gateway.keys import ApiKeys
from stages.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "w", "")


def keys(workspace: Workspace, *arguments: str, into: str = "") -> subprocess.CompletedProcess[str]:
    """`rtrl keys ARGUMENTS`, by a shell that sends its stdout `into` something."""
    line = f'"$0" -m rtrl_cli.main keys "$@" {into}'
    command = ["bash", "-o", "pipefail", "-c", line, sys.executable, *arguments]
    return subprocess.run(
        [*command, "-w", str(workspace.root)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("into", "code", "said"),
    [
        ("> /dev/full", 13, "cannot be written to stdout"),
        (">&-", 2, "stdout leads nowhere"),
        ("> /dev/null", 2, "stdout leads nowhere"),
        ("| exec 0<&-", 13, "nobody reads stdout"),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_nobody_got_is_not_in_force(
    workspace: Workspace, form: list[str], into: str, code: int, said: str
) -> None:
    """It was printed when it was in force already, and lost for good."""
    first = ApiKeys.create(workspace.keys_dir, "ide")
    before = ApiKeys.listed(workspace.keys_dir)
    for arguments in (["rotate", "ide", "--keep-old", "0"], ["add", "another"]):
        done = keys(workspace, *arguments, *form, into=into)
        assert (done.returncode, said in done.stderr) == (code, True), done
    assert ApiKeys.listed(workspace.keys_dir) == before
    assert ApiKeys.open(workspace.keys_dir).identify(first) == before[0]
    assert {one.name for one in workspace.keys_dir.iterdir()} == {"api_keys.json", "api_keys.lock"}


def test_of_several_rotations_each_secret_has_its_time(workspace: Workspace) -> None:
    """The second one refused the secret that the first one had promised to keep for a day."""
    secrets = [ApiKeys.create(workspace.keys_dir, "ide")]
    for hours in ("24", "1", "2"):
        secrets.append(keys(workspace, "rotate", "ide", "--keep-old", hours, "--quiet").stdout.strip())
    found = ApiKeys.open(workspace.keys_dir)
    assert [found.identify(one) is not None for one in secrets] == [True] * 4
    (key,) = ApiKeys.listed(workspace.keys_dir)
    times = [key.old_until, *(until for _, until in key.older)]
    assert times[1] < times[0] < times[2], "2, 1 and 24 hours"
    last = keys(workspace, "rotate", "ide", "--keep-old", "0", "--quiet").stdout.strip()
    found = ApiKeys.open(workspace.keys_dir)
    assert [found.identify(one) is not None for one in [*secrets, last]] == [False] * 4 + [True]
    (key,) = ApiKeys.listed(workspace.keys_dir)
    assert (key.old_sha256, key.older) == ("", ())


def test_the_file_with_the_first_key_follows_it(workspace: Workspace) -> None:
    """`rtrl simulate` and the documentation's examples read it, and were refused after the rotation."""
    first = ApiKeys.create(workspace.keys_dir, "default", shared=True)
    file = workspace.keys_dir / "default.key"
    ApiKeys.create(workspace.keys_dir, "other")
    keys(workspace, "rotate", "default")
    assert not file.exists(), "who has deleted it does not get it back"
    file.write_text(first + "\n")
    keys(workspace, "rotate", "other")
    assert file.read_text() == first + "\n"
    told = keys(workspace, "rotate", "default")
    assert file.read_text() == told.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    assert "keys/default.key has it too" in told.stderr
    assert keys(workspace, "rotate", "default", into="> /dev/full").returncode == 13
    assert ApiKeys.open(workspace.keys_dir).identify(file.read_text().strip()) is not None


def test_the_file_with_the_first_key_is_right_again_after_a_kill_between_the_two_files(
    workspace: Workspace,
) -> None:
    """It had a secret that nobody had any more, and no rotation wrote it anew."""
    ApiKeys.create(workspace.keys_dir, "default")
    file = workspace.keys_dir / "default.key"
    file.write_text("of before\n")
    ApiKeys.create(workspace.keys_dir, "other")
    keys(workspace, "rotate", "other")
    assert file.read_text() == "of before\n"
    told = keys(workspace, "rotate", "default").stdout
    assert file.read_text() == told
