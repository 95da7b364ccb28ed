"""How tests are dealt to workers changes none of them: engines are shared, examples and folders are not."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import conftest
from tests.conftest import pytest_runtest_setup, scope


def item(file: str, *fixtures: str) -> pytest.Item:
    return SimpleNamespace(nodeid=f"{file}::test_it", fixturenames=fixtures)  # type: ignore[return-value]


def test_modules_with_the_server_share_a_scope_and_others_have_their_own() -> None:
    assert scope("tests/e2e/test_serving.py") == scope("tests/e2e/test_clients.py") == "served"
    assert scope("tests/e2e/test_eval.py") == "served", "they have the batch engine in common"
    assert scope("tests/e2e/test_demo.py") == "tests/e2e/test_demo.py"


@pytest.mark.parametrize("engine", conftest.ENGINES)
def test_a_test_that_uses_an_engine_unseen_fails(engine: str) -> None:
    pytest_runtest_setup(item("tests/e2e/test_serving.py", engine))
    pytest_runtest_setup(item("tests/e2e/test_demo.py", "tmp_path"))
    with pytest.raises(pytest.fail.Exception, match="ENGINES"):
        pytest_runtest_setup(item("tests/e2e/test_demo.py", "tmp_path", engine))


def test_a_run_that_goes_on_keeps_its_folder_whatever_day_another_one_sees(tmp_path: Path) -> None:
    long_ago = time.time() - conftest.KEPT_S - 60
    ours = [conftest.own_folder(tmp_path) for _ in range(2)]
    others = [tmp_path / f"{conftest.OURS}{name}" for name in (2**22 + 1, "before")]
    for folder, over in zip([*ours, *others], [False, False, True, True], strict=True):
        folder.mkdir(exist_ok=True)
        assert not conftest.is_over(folder), "it was just made"
        os.utime(folder, (long_ago, long_ago))
        assert conftest.is_over(folder) == over


def test_a_slow_machine_fails_no_property() -> None:
    """Making six examples took half a minute: hypothesis gave up. A test's own setting replaces ours."""
    files = (conftest.ROOT / "tests").rglob("*.py")
    said = [
        one for file in files for one in re.findall(r"health_check\W+\[(.*?)\]", file.read_text(), re.DOTALL)
    ]
    assert len(said) > 1
    assert [one for one in said if "HealthCheck.too_slow" not in one] == []


def test_a_property_tries_the_same_whatever_was_loaded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strings of our modules are examples to hypothesis, of those that a process has loaded by then."""
    if settings.get_current_profile_name() != "rtrl":
        pytest.skip("`explore` looks for others")

    def tried() -> list[list[str]]:
        examples = []

        @settings(database=None)
        @given(st.lists(st.text()))
        def example(texts: list[str]) -> None:
            examples.append(texts)

        example()
        return examples

    before = tried()
    own = tmp_path / "loaded_later.py"
    own.write_text(f"LATER = {[f'string {n}' for n in range(50)]}\n")
    spec = importlib.util.spec_from_file_location("loaded_later", own)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loaded_later", module)
    assert tried() == before
