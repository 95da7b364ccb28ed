"""What Poetry, PDM, uv and Hatch declare in their own tables of a pyproject.toml."""

from __future__ import annotations

import tomllib

import pytest

from cursorbench.builder import lock
from cursorbench.builder.project import Project
from cursorbench.builder.tool_tables import of_document

POETRY = """
[tool.poetry]
name = "Words.Of"
version = "1.2.0"
[tool.poetry.dependencies]
python = "^3.8"
click = "^8.1.3"
attrs = "*"
tomli = { version = "~2.0.1", python = "<3.11", extras = ["fast"] }
redis = { version = "5.0", optional = true }
here = { path = "../here", develop = true }
wheels = { version = ">=1,<2", platform = "win32", markers = "python_version < '4'" }
[tool.poetry.extras]
cache = ["redis"]
[tool.poetry.dev-dependencies]
mock = "4.*"
[tool.poetry.group.dev.dependencies]
pytest = [{ version = "^7.2", python = "^3.7" }, { version = "^3.0", python = "~2.7 || ^3.5" }]
[tool.poetry.group.docs.dependencies]
sphinx = "^7"
[tool.poetry.scripts]
words = "words.cli:main"
[tool.poetry.plugins."pytest11"]
words = "words.plugin"
"""


def test_poetry() -> None:
    """Nothing of it was read: no test ran that imports what the project stands on."""
    assert of_document(tomllib.loads(POETRY)) == {
        "name": "Words.Of",
        "version": "1.2.0",
        "dependencies": [
            "click>=8.1.3,<9",
            "attrs",
            'tomli[fast]>=2.0.1,<2.1 ; (python_full_version < "3.11")',
            "here",
            "wheels>=1,<2 ; (sys_platform == \"win32\") and (python_version < '4')",
        ],
        "extras": {"cache": ["redis==5.0"]},
        "groups": {
            "dev": (
                "mock==4.*",
                'pytest>=7.2,<8 ; (python_full_version >= "3.7" and python_full_version < "4")',
                'pytest>=3.0,<4 ; (python_full_version >= "2.7" and python_full_version < "2.8"'
                ' or python_full_version >= "3.5" and python_full_version < "4")',
            ),
            "docs": ("sphinx>=7,<8",),
        },
        "scripts": {"console_scripts": ["words = words.cli:main"], "pytest11": ["words = words.plugin"]},
    }


@pytest.mark.parametrize(
    ("constraint", "specifier"),
    [
        ("^0.2.3", ">=0.2.3,<0.3"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("^0.0", ">=0.0,<0.1"),
        ("^0", ">=0,<1"),
        ("~1", ">=1,<2"),
        ("~=1.4", "~=1.4"),
        (">= 1.2 <2", ">=1.2,<2"),
        ("!=1.5.*,>=1.2.*", "!=1.5.*,>=1.2"),
        ("^23.7b0", ">=23.7b0,<24"),
        ("^2.0 || ^3.1", ">=2.0,<4"),
        ("1.* | 3.*", ">=1"),
        ("words", ""),
    ],
)
def test_constraints(constraint: str, specifier: str) -> None:
    told = of_document({"tool": {"poetry": {"dependencies": {"one": constraint}}}})
    assert told["dependencies"] == [f"one{specifier}"]


def test_project_goes_before_poetry_and_groups_go_together() -> None:
    text = """
[project]
name = "words"
dependencies = ["click"]
[dependency-groups]
dev = ["pytest"]
[tool.poetry]
name = "other"
version = "0.0.0"
[tool.poetry.dependencies]
click = { version = "^8" }
[tool.poetry.group.dev.dependencies]
pytest-mock = ">=3.8.2"
"""
    told = of_document(tomllib.loads(text))
    assert (told["name"], told["dependencies"]) == ("words", ["click"])
    assert "version" not in told  # a plugin of Poetry's takes it from git
    assert told["groups"] == {"dev": ("pytest", "pytest-mock>=3.8.2")}


def test_pdm_uv_and_hatch() -> None:
    text = """
[project]
name = "words"
[tool.pdm.dev-dependencies]
test = ["pytest>=7.4", "-e file:///${PROJECT_ROOT}/sub"]
[tool.uv]
dev-dependencies = ["hypothesis"]
[tool.hatch.envs.default]
dependencies = ["responses", "sub @ {root:uri}/sub"]
features = ["cli"]
[tool.hatch.envs.hatch-test]
extra-dependencies = ["freezegun"]
"""
    told = of_document(tomllib.loads(text))
    assert told["groups"] == {
        "test": ("pytest>=7.4",),
        "dev": ("hypothesis", "responses", "words[cli]"),
        "hatch-test": ("freezegun",),
    }
    project = Project(name="words", extras={"cli": ("click",)}, groups=told["groups"])
    found = lock.wanted(("auto",), project)
    assert found == ("click", "freezegun", "hypothesis", "pytest", "pytest>=7.4", "responses")


def test_what_is_of_another_form_says_nothing() -> None:
    tool = {
        "poetry": {"dependencies": {"one": 3, "two": [4]}, "group": ["dev"], "extras": "all", "scripts": [1]},
        "pdm": {"dev-dependencies": ["pytest"]},
        "uv": [],
        "hatch": {"envs": {"default": 3, "test": {"dependencies": "pytest"}}},
    }
    assert of_document({"tool": tool}) == {"dependencies": ["one", "two"], "groups": {}}
