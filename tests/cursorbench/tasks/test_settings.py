"""task.toml there and back, and what is read of Harbor's older forms."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.errors import IntegrityError
from cursorbench.tasks import container, settings
from cursorbench.tasks.task import (
    CursorBenchFields,
    EnvironmentSpec,
    ExpectedTests,
    Intent,
    PromptSource,
    Split,
    Task,
)

word = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True)
text = st.text(st.characters(codec="utf-8"), max_size=40)
said = text.filter(lambda value: value.strip() != "")
count = st.integers(0, 10**6)
seconds = st.floats(0.5, 1e5)
commit = st.from_regex(r"[0-9a-f]{40}", fullmatch=True)
path = st.lists(word, min_size=1, max_size=3).map("/".join)

fields = st.builds(
    CursorBenchFields,
    instance_id=word,
    repo=said,
    base_commit=commit,
    created_at=st.just("2026-03-01T12:00:00+00:00"),
    cluster=said,
    split=st.sampled_from(get_args(Split)),
    canary=word,
    prompt_chars=count,
    prompt_source=st.sampled_from(get_args(PromptSource)),
    intent=st.sampled_from(get_args(Intent)),
    files_changed=count,
    lines_changed=count,
    reference_turns=st.none() | count,
    reference_tokens=st.none() | count,
)
variables = st.dictionaries(
    st.from_regex(r"[A-Z_][A-Z0-9_]{0,9}", fullmatch=True),
    text.filter(lambda value: "\0" not in value),
    max_size=3,
)
environments = st.builds(
    EnvironmentSpec,
    kind=st.just("python"),
    python=st.sampled_from(["3.9", "3.11", "3.13"]),
    import_paths=st.lists(path, max_size=2).map(tuple),
    variables=variables,
    image=st.just("") | word,
    workdir=st.just("/work") | path.map(lambda value: f"/{value}"),
    tree=st.just("") | commit,
    cpus=st.none() | st.floats(0.5, 64),
    memory_mb=st.none() | st.integers(1, 10**6),
    storage_mb=st.none() | st.integers(1, 10**6),
    build_timeout_s=seconds,
)
TESTS = ExpectedTests(("pytest", "{report}"), ("a",), (), ())


@given(fields, environments, seconds, seconds)
def test_there_and_back(
    known: CursorBenchFields, spec: EnvironmentSpec, timeout_s: float, verifier_s: float
) -> None:
    task = Task(Path("t"), known, "", TESTS, timeout_s, spec, verifier_s)
    written = settings.dump(task)
    assert tomllib.loads(written)["schema_version"] == "1.4"
    assert settings.parse(written, "t") == settings.Settings(known, spec, timeout_s, verifier_s)


@given(st.text(max_size=200))
def test_any_text_is_settings_or_said_to_be_none(content: str) -> None:
    with pytest.raises(IntegrityError, match=r"task\.toml"):
        settings.parse(content, "task.toml")


@given(said, word)
def test_an_instruction_there_and_back(instruction: str, canary: str) -> None:
    written = container.with_canary(instruction.strip(), canary)
    assert canary in written.splitlines()[0]
    assert container.without_canary(written) == instruction.strip()


def test_older_forms_of_harbors(tmp_path: Path) -> None:
    known = CursorBenchFields(
        instance_id="a", repo="b", base_commit="0" * 40, created_at="2026-03-01T12:00:00Z", cluster="c",
        split="dev", canary="d", prompt_chars=1, prompt_source="user", intent="debug",
        files_changed=1, lines_changed=1,
    )  # fmt: skip
    written = settings.dump(Task(tmp_path, known, "x", TESTS, 1.0, EnvironmentSpec("host", memory_mb=None)))
    old = written.replace('schema_version = "1.4"', 'version = "1.0"')
    assert settings.parse(old, "t").fields == known
    sized = old.replace("storage_mb = 1024", 'storage = "1G"\nmemory = "512M"\nsomething_new = 7')
    spec = settings.parse(sized, "t").environment
    assert (spec.memory_mb, spec.storage_mb) == (512, 1024)
    with pytest.raises(IntegrityError, match="'xG' is no size"):
        settings.parse(old.replace("storage_mb = 1024", 'memory = "xG"'), "t")


@pytest.mark.parametrize("outside", ["", "/etc", "../x", "a/../../b", ".git/hooks", "a\\b", "a\0b"])
def test_paths_stay_inside(outside: str) -> None:
    with pytest.raises(settings.Invalid, match="is no path inside the working tree"):
        settings.inside(outside, "x")


def test_what_an_environment_cannot_be() -> None:
    spec = EnvironmentSpec("python", "3.11")
    settings.check_environment(spec)
    for wrong in (
        replace(spec, python="3"),
        replace(spec, python=""),
        replace(spec, variables={"A-B": ""}),
        replace(spec, import_paths=("../x",)),
        replace(spec, workdir="/a/../b"),
        replace(spec, tree="abc"),
        replace(spec, cpus=0),
        replace(spec, build_timeout_s=float("inf")),
    ):
        with pytest.raises(settings.Invalid):
            settings.check_environment(wrong)


def test_a_dockerfile_and_scripts_quote_what_they_name(tmp_path: Path) -> None:
    spec = EnvironmentSpec("python", "3.12", ("src",), {"NOTE": 'a "b" $HOME'}, workdir="/w d")
    known = CursorBenchFields(
        instance_id="a", repo="b", base_commit="0" * 40, created_at="2026-03-01T12:00:00Z", cluster="c",
        split="dev", canary="d", prompt_chars=1, prompt_source="user", intent="debug",
    )  # fmt: skip
    tests = ExpectedTests(("pytest", "-k", "a b", "--junitxml={report}"), ("x",), (), ("t.py",), ("it's.py",))
    task = Task(tmp_path, known, "x", tests, 1.0, spec)
    found = container.files(task)
    assert "FROM python:3.12-slim-bookworm" in found["environment/Dockerfile"]
    assert 'ENV NOTE="a \\"b\\" \\$HOME"' in found["environment/Dockerfile"]
    assert 'ENV PYTHONPATH="/w d/src"' in found["environment/Dockerfile"]
    assert "pytest -k 'a b' --junitxml=/tmp/report.xml" in found["tests/test.sh"]
    assert "rm -f -- 'it'\"'\"'s.py'" in found["tests/test.sh"]
    assert "cd '/w d'" in found["solution/solve.sh"]
