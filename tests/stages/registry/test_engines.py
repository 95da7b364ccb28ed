"""What the engines of several stores have in common, and what they have not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy.sql.compiler import SQLCompiler

from stages.registry.store import Store
from stages.workspace import Workspace
from tests.stages.toy import checkpoint


def test_a_statement_is_compiled_once_for_all_stores(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (
        Store.open(Workspace(Path(shutil.copytree(template, tmp_path / name))).store_dir) for name in "ab"
    )
    made = checkpoint(one, tmp_path / "c", "x", None)
    assert one.artifact(made.digest) == made
    compiled: list[object] = []
    before = SQLCompiler.__init__

    def counted(self: SQLCompiler, *args: object, **kwargs: object) -> None:
        compiled.append(args)
        before(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(SQLCompiler, "__init__", counted)
    assert other.artifact(made.digest) is None, "each engine is of its own file"
    assert compiled == []
