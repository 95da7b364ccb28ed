"""What `--input` names: a line state goes with its checkpoint, and a line learns from its own users."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from stages.collect.run import STAGE as COLLECT
from stages.distill.run import STAGE as DISTILL
from stages.errors import InputMissingError, UsageError
from stages.refs import refs_by_kind
from stages.registry.store import Store
from stages.schemas import EXPERIENCE_SCHEMA
from stages.stage import Artifact, Output, Stage
from stages.train.inputs import experience_named
from stages.train.run import STAGE as TRAIN
from stages.workspace import Workspace
from tests.stages.toy import checkpoint


@pytest.fixture
def line(tmp_path: Path) -> tuple[Workspace, Store, list[Artifact]]:
    """Two checkpoints, the second one live, and interactions and experience of it."""
    workspace = Workspace.create(tmp_path / "ws", "")
    store = Store.open(workspace.store_dir)
    first = checkpoint(store, tmp_path / "one", "one")
    second = checkpoint(store, tmp_path / "two", "two", parent=first.digest)
    for name in ("anchor", "live"):
        store.move_alias("auto", name, second.digest, reason="test")
    _learnt(store, tmp_path, "auto", second)
    return workspace, store, [first, second]


def _learnt(store: Store, root: Path, line: str, of: Artifact, schema: str = EXPERIENCE_SCHEMA) -> None:
    folder = root / f"{line}-{schema[-1]}"
    folder.mkdir()
    (folder / "rows").write_text(folder.name)
    output = Output("interactions", {"checkpoint": of.digest})
    taken = store.publish_external({"interactions": (output, folder)}, line=line, stage="collect")
    meta = {"checkpoint": of.digest, "schema": schema, "interactions": [taken["interactions"].digest]}
    outputs = {
        "experience": (Output("experience", meta), folder),
        "line_state": (Output("line_state", {"checkpoint": of.digest}), folder),
    }
    store.publish_external(outputs, line=line, stage="distill")


def test_an_experience_of_another_version_is_to_be_distilled_again(
    line: tuple[Workspace, Store, list[Artifact]], tmp_path: Path
) -> None:
    """It was taken for damage (exit 12), with a hint to make it again that did not say of what."""
    workspace, store, (_, second) = line
    assert TRAIN.resolve(workspace, store, {})["experience"].ref == "experience@v1"
    _learnt(store, tmp_path, "auto", second, "rtrl-experience/1")
    for refs in ({}, {"experience": "experience@v2"}):
        with pytest.raises(
            InputMissingError, match=r"experience@v2 was distilled by another version"
        ) as caught:
            TRAIN.resolve(workspace, store, refs)
        assert caught.value.hint.endswith("rtrl distill --input interactions@v2")


@pytest.mark.parametrize("stage", [COLLECT, DISTILL, TRAIN], ids=lambda stage: stage.name)
def test_a_line_state_of_another_checkpoint_is_refused(
    line: tuple[Workspace, Store, list[Artifact]], stage: Stage
) -> None:
    """`train` took another one without a word; `distill` and `collect` went on from the wrong one."""
    workspace, store, (first, second) = line
    theirs = store.line_state_of(first.digest)
    with pytest.raises(UsageError, match=f"{theirs.ref} goes with {first.ref}, not with {second.ref}"):
        stage.resolve(workspace, store, {"line_state": theirs.ref})
    own = store.line_state_of(second.digest)
    assert stage.resolve(workspace, store, {"line_state": own.ref})["line_state"] == own


@pytest.mark.parametrize(
    ("stage", "refs"), [(DISTILL, ["interactions@v2"]), (TRAIN, ["experience@v2"])], ids=["distill", "train"]
)
def test_what_users_of_another_line_did_is_refused(
    line: tuple[Workspace, Store, list[Artifact]], tmp_path: Path, stage: Stage, refs: Sequence[str]
) -> None:
    _, store, (_, second) = line
    _learnt(store, tmp_path, "acme", second)
    with pytest.raises(UsageError, match="is of line acme, and this is line auto") as caught:
        refs_by_kind(store, stage, refs, "auto")
    assert "--line acme" in caught.value.hint
    with pytest.raises(UsageError, match="is of line acme, and this is line auto"):
        experience_named(store, "auto", "experience@v2")  # of `rtrl export`, and of --consumed
    assert refs_by_kind(store, stage, refs, "acme") == {refs[0].partition("@")[0]: refs[0]}
