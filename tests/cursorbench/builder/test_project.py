"""What a project says of itself, and which requirements that makes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cursorbench.builder import lock, runner
from cursorbench.builder.compiled import told
from cursorbench.builder.cut import FutureLeftError
from cursorbench.builder.draft import overlay
from cursorbench.builder.installed import assert_absent
from cursorbench.builder.members import about
from cursorbench.builder.project import Project, has_pytest, project_at
from cursorbench.builder.settings import Settings
from cursorbench.builder.unfit import Unfit
from cursorbench.errors import UsageError
from cursorbench.history.repository import Repository
from tests.cursorbench.history.gits import Git

PYPROJECT = """
[project]
name = "My.Words"
dynamic = ["version"]
dependencies = ["attrs>=21"]
[project.optional-dependencies]
tests = ["pytest", "hypothesis>=6"]
dev = ["my-words[tests]", "ruff", "httpx"]
docs = ["sphinx"]
[project.scripts]
words = "words.cli:main"
[project.entry-points.pytest11]
words = "words.plugin"
[dependency-groups]
test = ["trio", {include-group = "more"}]
more = ["outcome"]
[tool.hatch.build.hooks.vcs]
version-file = "src/words/_version.py"
[tool.pytest.ini_options]
addopts = "-q"
"""
SETUP_PY = """
from setuptools import setup
NEEDED = ["click", "six"]
setup(name="old_words", version="1.2", install_requires=NEEDED, extras_require={"test": ["pytest"]},
      entry_points={"console_scripts": ["w = w:main"]}, packages=find_packages())
"""


def project(tmp_path: Path, files: dict[str, str | None], tag: str = "") -> tuple[Project, bool]:
    git = Git(tmp_path)
    git.commit(0, files)
    if tag:
        git("tag", tag)
    commit = git.commit(1, {"later.txt": "x\n"})
    with Repository(tmp_path) as repository:
        found = project_at(repository, commit)
        return found, has_pytest(repository, commit, found)


def test_pyproject(tmp_path: Path) -> None:
    files: dict[str, str | None] = {
        "pyproject.toml": PYPROJECT,
        "src/words/__init__.py": "",
        "src/one.py": "",
        "setup.py": "x",
    }
    found, pytest_ = project(tmp_path, files, tag="v2.1.0")
    assert found == Project(
        name="my-words",
        version="2.1.0",
        dependencies=("attrs>=21",),
        extras={
            "tests": ("pytest", "hypothesis>=6"),
            "dev": ("my-words[tests]", "ruff", "httpx"),
            "docs": ("sphinx",),
        },
        groups={"test": ("trio", "outcome"), "more": ("outcome",)},
        scripts={"console_scripts": ("words = words.cli:main",), "pytest11": ("words = words.plugin",)},
        import_paths=("src", "."),
        modules=("one", "words"),
        version_file="src/words/_version.py",
    )
    assert pytest_


def test_packages_in_a_namespace_that_others_share(tmp_path: Path) -> None:
    """`src` was not on the import path, so that no test of such a project could import it; an older one's
    namespace in what it requires was taken for a release of it."""
    shares = '__import__("pkg_resources").declare_namespace(__name__)\n'
    for number, first in enumerate(
        (None, shares, "from pkgutil import extend_path\n__path__ = extend_path(a, b)")
    ):
        files: dict[str, str | None] = {
            "setup.py": "setup(name='zope.event')",
            "runtests.py": "",
            "src/zope/event/__init__.py": "",
            "src/zope/tests/__init__.py": "",
            "src/zope/x/y/deeper/__init__.py": "",
        }
        found, _ = project(
            tmp_path / str(number), {**files, "src/zope/__init__.py": first} if first else files
        )
        assert (found.import_paths, found.modules) == (("src", "."), ("zope.event", "zope.x.y.deeper"))
    site = tmp_path / "venv" / "lib" / "site-packages"
    (site / "zope" / "interface").mkdir(parents=True)
    (site / "zope" / "eventual.py").touch()
    assert assert_absent(tmp_path / "venv", found) == 0
    (site / "zope" / "event").mkdir()
    with pytest.raises(FutureLeftError, match="a module zope/event, which"):
        assert_absent(tmp_path / "venv", found)


def test_tests_of_unittest_are_run_by_pytest_too(tmp_path: Path) -> None:
    """Of a project whose one file of tests is `test.py` no commit made a task: no sign of pytest."""
    for number, (name, runs) in enumerate(
        {"test.py": True, "w/tests.py": True, "x/latest.py": False}.items()
    ):
        assert project(tmp_path / str(number), {"w.py": "", name: "import unittest\n"})[1] is runs


def test_setup_py_and_requirement_files(tmp_path: Path) -> None:
    files: dict[str, str | None] = {
        "setup.py": SETUP_PY,
        "w.py": '__version__ = "9"\n',
        "requirements-dev.txt": "pytest-cov  # for CI\n-r requirements.txt\n\n# none\nblack\n",
    }
    found, pytest_ = project(tmp_path, files)
    assert (found.name, found.version, found.dependencies) == ("old-words", "1.2", ("click", "six"))
    assert found.files == {"requirements-dev.txt": ("pytest-cov", "black")}
    assert (found.import_paths, found.modules) == ((".",), ("w",))
    assert pytest_
    assert lock.wanted(("auto",), found) == ("black", "click", "pytest", "pytest-cov", "six")


def test_setup_py_with_names_in_lists_and_tables(tmp_path: Path) -> None:
    """Of `extras_require={"test": TESTS}` nothing was read, nor of the table beside it."""
    text = """
from setuptools import setup
BASE = ("six",)
TESTS = ["mypy~=1.4", *BASE]
EXTRAS = {"test": TESTS, "docs": read("docs.txt"), **{"fast": ["lz4"]}}
setup(name="w" + "ords", install_requires=BASE + ["click", read("x")], extras_require=EXTRAS,
      entry_points={"console_scripts": "w = w:main"}, version=read("VERSION"))
"""
    found, _ = project(tmp_path, {"setup.py": text, "w.py": ""})
    assert (found.name, found.version, found.dependencies) == ("words", "", ("six", "click"))
    assert found.extras == {"test": ("mypy~=1.4", "six"), "fast": ("lz4",)}
    assert lock.wanted(("auto",), found) == ("click", "mypy~=1.4", "pytest", "six")


def test_setup_py_with_a_table_of_parameters(tmp_path: Path) -> None:
    """psf/cachecontrol's for ten years, and of many others: it had no name and no requirements."""
    text = """
import setuptools
params = dict(name="words", version="1.2", install_requires=["requests>=2"],
              extras_require=dict(test=["mypy"], **{"fast": ["lz4"]}), packages=setuptools.find_packages())
if __name__ == "__main__":
    setuptools.setup(**params, entry_points={"console_scripts": ["w = w:main"]}, **read("more"))
"""
    found, _ = project(tmp_path, {"setup.py": text, "w.py": ""})
    assert (found.name, found.version, found.dependencies) == ("words", "1.2", ("requests>=2",))
    assert found.extras == {"test": ("mypy",), "fast": ("lz4",)}
    assert found.scripts == {"console_scripts": ("w = w:main",)}


@pytest.mark.parametrize("text", ["A = A + A\n", "A = [A, A]\n", "A = {**A, 'a': A}\n"])
def test_setup_py_that_goes_round_in_circles(tmp_path: Path, text: str) -> None:
    found, _ = project(tmp_path, {"setup.py": f"{text}setup(name='w', extras_require=A, install_requires=A)"})
    assert (found.name, found.dependencies) == ("w", ())


TOX = """
[tox]
envlist = py3
[testenv]
extras = test
deps =
    # for coverage
    pytest-cov >=4 # and its report
    -r tests/requirements.txt
    {[base]deps}
    django42: Django>=4.2,<5
    time-machine; python_version > "3.8"
[testenv:docs]
deps = sphinx
"""


def test_what_tox_and_a_file_beside_the_tests_ask_for(tmp_path: Path) -> None:
    """pytest's settings name options of pytest-cov; a run without it ends with pytest's usage."""
    files: dict[str, str | None] = {
        "setup.py": "x",
        "tox.ini": TOX,
        "tests/requirements.txt": "pytest\nodfpy\n",
    }
    found, _ = project(tmp_path, files)
    told = ("pytest-cov >=4", 'time-machine; python_version > "3.8"')
    assert found.files == {"tests/requirements.txt": ("pytest", "odfpy"), "tox.ini": (*told, ".[test]")}
    assert lock.wanted(("auto",), found) == ("odfpy", "pytest", *told)


def test_requirement_files_that_name_the_tree_or_include_others(tmp_path: Path) -> None:
    """`-e .[test]` was dropped, and with it what the tests import."""
    files: dict[str, str | None] = {
        "pyproject.toml": '[project]\nname = "w"\ndependencies = ["click"]\n'
        '[project.optional-dependencies]\nchecks = ["trio"]\nunused = ["numpy"]\n',
        "core/pyproject.toml": '[project]\nname = "w-core"\ndependencies = ["attrs"]\n'
        '[project.optional-dependencies]\nx = ["six"]\n',
        "tests/requirements.txt": "-e ..[checks]  # as docs/test.md says\n--editable=./core[x]\n"
        "-r../ci/more.in\n-e git+https://example.org/y#egg=y\n-e ../../outside\n./wheels/z.whl\n"
        "-c limits.txt\n-ecore\nout/there\n",
        "ci/more.in": "hypothesis\n-r more.in\n-r ../requirements.txt\n-r gone.in\n",
        "tox.ini": "[testenv]\nextras =\n  checks\ndeps =\n  -r{toxinidir}/ci/more.in\n  py27: mock\n"
        "  -e {toxinidir}/core\n  {[base]deps}\n",
    }
    found, _ = project(tmp_path, files)
    assert found.files == {
        "tests/requirements.txt": (
            ".[checks]", "./core[x]", "hypothesis", "./wheels/z.whl", "./out/there"
        ),
        "tox.ini": ("hypothesis", "./core", ".[checks]"),
    }  # fmt: skip
    assert lock.wanted(("auto",), found) == ("attrs", "click", "hypothesis", "pytest", "six", "trio")
    assert [one.folder for one in about(found, []).members.values() if one.imported] == ["core"]
    for rows, needed in (((".[full]",), ("a", "b", "c")), (("pytest",), ("a", "b")), ((), ("a",))):
        of = Project(
            name="w", dependencies=("a",), extras={"full": ("c",)}, files={"requirements.txt": ("b", *rows)}
        )
        assert lock.wanted(("auto",), of) == (*needed, "pytest")


def test_setup_cfg_and_versions_in_code(tmp_path: Path) -> None:
    files: dict[str, str | None] = {
        "setup.cfg": "[metadata]\nname = w\nversion = attr: w.__version__\n[options]\ninstall_requires =\n"
        "  six\n  click>7\n"
        "[options.extras_require]\ntest = pytest\n",
        "w/__init__.py": "__version__: str = '3.4.5'\n",
    }
    found, pytest_ = project(tmp_path, files)
    assert (found.version, found.dependencies, found.extras) == (
        "3.4.5",
        ("six", "click>7"),
        {"test": ("pytest",)},
    )
    assert pytest_


def test_texts_where_setuptools_takes_lists(tmp_path: Path) -> None:
    told = (
        "setup(name='w', install_requires='six\\nclick', "
        "extras_require={'test': 'pytest\\nmock', 1: ['x']}, "
        "entry_points={'console_scripts': 'w = w:main'})\n"
    )
    found, _ = project(tmp_path, {"setup.py": told})
    assert (found.dependencies, found.extras) == (("six", "click"), {"test": ("pytest", "mock")})
    assert found.scripts == {"console_scripts": ("w = w:main",)}


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": "[project]\nname = 'w'\noptional-dependencies = ['a']\n"},
        {"pyproject.toml": "[project]\nname = 'w'\n[tool.x]\ny = " + "9" * 5000},
        {"setup.py": "setup(name='w', extras_require=['a'], entry_points=['b'])\n"},
    ],
)
def test_what_is_of_another_form_says_nothing(files: dict[str, str | None], tmp_path: Path) -> None:
    """It ended the build of all candidates."""
    found, _ = project(tmp_path, files)
    assert (found.extras, found.scripts) == ({}, {})


def test_nothing_of_python(tmp_path: Path) -> None:
    assert project(
        tmp_path, {"main.go": "package main\n", "pyproject.toml": "= broken", "setup.py": "def"}
    ) == (Project(), False)


def test_words_of_install(tmp_path: Path) -> None:
    found, _ = project(tmp_path, {"pyproject.toml": PYPROJECT})
    assert lock.wanted(("auto",), found) == (
        "attrs>=21",
        "httpx",
        "hypothesis>=6",
        "outcome",
        "pytest",
        "trio",
    )
    assert lock.wanted(lock.words(". pytest<8"), found) == ("attrs>=21", "pytest<8")
    assert lock.wanted(lock.words(".[docs,gone] @more @gone"), found) == ("attrs>=21", "outcome", "sphinx")
    assert lock.words("-r dev.txt -rother.txt") == ("-rdev.txt", "-rother.txt")
    for wrong in ("--upgrade", ".[", "@"):
        with pytest.raises(UsageError, match="is no requirement"):
            lock.words(wrong)


def test_a_pytest_that_knows_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a commit of 2019 each run under Python 3.11 ended without a report."""
    asked: list[Sequence[str]] = []

    def compiled(arguments: Sequence[str], _: str) -> str:
        asked.append(arguments)
        return f"pytest=={len(asked)}.0 --hash=sha256:0\n"

    monkeypatch.setattr(lock, "_uv", compiled)
    of = Project(dependencies=("attrs",), extras={"dev": ("y @ git+ssh://x",)})
    old, now = "2019-05-01T00:00:00+00:00", "2024-05-01T00:00:00+00:00"
    settings = Settings(tmp_path, tmp_path)
    made = [
        runner.version(runner.lock_of(settings, "3.11", at, of, tmp_path, newer=newer))
        for at, newer in ((old, False), (old, True), (now, False), (now, True), (old, True))
    ]
    assert made == ["1.0", "2.0", "3.0", "3.0", "2.0"]
    days = [one for one in asked[1] if "=" in one]
    assert days == [f"{name}=2023-07-01T00:00:00+00:00" for name in sorted(runner.RUNNER)]
    assert not any("=" in one for one in (*asked[0], *asked[2]))
    with pytest.raises(Unfit) as caught:
        runner.lock_of(settings, "3.11", old, Project(dependencies=("z @ https://x/z.whl",)), tmp_path)
    assert caught.value.detail.startswith("z @ https://x/z.whl is of no index")


def test_quarters() -> None:
    assert lock.as_of(datetime(2023, 11, 21, tzinfo=UTC)) == datetime(2024, 1, 1, tzinfo=UTC)
    assert lock.as_of(datetime(2024, 3, 31, 23, tzinfo=UTC)) == datetime(2024, 4, 1, tzinfo=UTC)
    assert lock.as_of(datetime(2024, 4, 1, tzinfo=UTC)) == datetime(2024, 7, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("my_words-3.0.dist-info/METADATA", "", "my_words-3.0.dist-info, which the tasks are about"),
        ("My.Words-3.0-py3.11.egg-info", "", "which the tasks are about"),
        ("words/__init__.py", "", "a module words"),
        ("words.py", "", "a module words.py"),
        ("words.cpython-311.so", "", "a module words.cpython-311.so"),
        ("other.pth", "/home/me/words\n", "puts a folder of elsewhere on the path"),
    ],
)
def test_a_release_in_the_environment_is_seen(tmp_path: Path, name: str, text: str, message: str) -> None:
    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    (site / "attrs-23.1.dist-info").mkdir(parents=True)
    (site / "wordsmith").mkdir()
    (site / "distutils-precedence.pth").write_text("import os; os.environ\n")
    about = Project(name="my-words", modules=("words",))
    assert assert_absent(tmp_path / "venv", about) == 1
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    (site / name).write_text(text)
    with pytest.raises(FutureLeftError, match=message):
        assert_absent(tmp_path / "venv", about)


def test_what_pip_compile_writes(tmp_path: Path) -> None:
    """The backslash stayed and took the next requirement along: no lock could be made of it."""
    text = """\
--index-url https://example.org/simple
attrs==23.2.0 \\
    --hash=sha256:935dc3b529c262f6cf76e50877d35a4bd3c1de194fd41f47a2b7ae8f19971f30 \\
    --hash=sha256:99b87a485a5820b23b879f04c2305b44b951b502fd64be915879d77a7e8fc6f1
    # via -r requirements.in
iniconfig==2.0.0 ; python_version < "4" --hash=sha256:2d91
colorama \\
    ==0.4.6
"""
    wanted = ("attrs==23.2.0", 'iniconfig==2.0.0 ; python_version < "4"', "colorama      ==0.4.6")
    found, _ = project(
        tmp_path, {"requirements.txt": text, "dev-requirements.txt": text.replace("\n", "\r\n")}
    )
    assert found.files == {"requirements.txt": wanted, "dev-requirements.txt": wanted}


def test_the_members_of_a_workspace_are_never_installed(tmp_path: Path) -> None:
    """They were locked from the index, as of the quarter's end: a later release of what the task is about."""
    files: dict[str, str | None] = {
        "pyproject.toml": '[project]\nname = "acme"\ndependencies = ["mistune>=3", "attrs"]\n',
        "packages/mistune/pyproject.toml": '[project]\nname = "Mistune"\ndependencies = ["acme-core", "six"]',
        "packages/core/pyproject.toml": '[project]\nname = "acme.core"\ndependencies = ["mistune", "click"]',
        "packages/mistune/test_m.py": "",
    }
    found, _ = project(tmp_path / "repo", files)
    assert found.code == ("acme", "acme-core", "mistune")
    assert lock.wanted(("auto",), found) == ("attrs", "click", "pytest", "six")
    site = tmp_path / "venv" / "lib" / "site-packages"
    (site / "mistune-3.0.2.dist-info").mkdir(parents=True)
    with pytest.raises(FutureLeftError, match="mistune"):
        assert_absent(tmp_path / "venv", found)


def test_a_change_of_a_member_is_tested_with_what_it_requires(tmp_path: Path) -> None:
    """Of a repository of several packages no test could import its own: none was on the import path."""
    core = (
        '[project]\nname = "acme-core"\ndependencies = ["attrs"]\n'
        '[project.optional-dependencies]\nfast = ["orjson"]'
    )
    web = (
        '[project]\nname = "acme.web"\ndependencies = ["acme-core[fast]", "starlette"]\n'
        '[project.entry-points.acme]\nweb = "acme.web:app"\n[dependency-groups]\ntest = ["httpx", "acme-kit"]'
    )
    files: dict[str, str | None] = {
        "pyproject.toml": "[tool.uv.workspace]\nmembers = ['packages/*']\n",
        "packages/core/pyproject.toml": core,
        "packages/core/src/acme/core/__init__.py": "",
        "packages/web/pyproject.toml": web,
        "packages/web/src/acme/web/__init__.py": '__version__ = "3.1"\n',
        "packages/web/tests/test_web.py": "",
        "kit/pyproject.toml": '[project]\nname = "acme-kit"\ndependencies = ["trio"]\n',
        "kit/acme_kit/__init__.py": "",
        "examples/shop/pyproject.toml": '[project]\nname = "shop"\ndependencies = ["acme-web", "django"]\n',
        "examples/shop/shop.py": "",
    }
    found, _ = project(tmp_path, files)
    assert lock.wanted(("auto",), found) == ("pytest",)
    changed = about(found, ["packages/web/src/acme/web/__init__.py", "packages/web/tests/test_web.py"])
    assert changed.changed == ("acme-web",)
    assert changed.import_paths == (".", "kit", "packages/core/src", "packages/web/src")
    assert changed.modules == ("acme.core", "acme.web", "acme_kit")
    assert lock.wanted(("auto",), changed) == ("attrs", "httpx", "orjson", "pytest", "starlette", "trio")
    assert lock.wanted(lock.words(". @test"), changed) == ("attrs", "httpx", "orjson", "starlette", "trio")
    with Repository(tmp_path) as repository:
        beside = overlay(repository, repository.commit("HEAD"), changed)
    assert sorted(beside) == [
        "kit/acme_kit.egg-info/PKG-INFO",
        "packages/core/src/acme_core.egg-info/PKG-INFO",
        "packages/web/src/acme_web.egg-info/PKG-INFO",
        "packages/web/src/acme_web.egg-info/entry_points.txt",
    ]
    assert beside["packages/web/src/acme_web.egg-info/entry_points.txt"] == b"[acme]\nweb = acme.web:app\n"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"setup.py": "from Cython.Build import cythonize\nsetup(ext_modules=cythonize(x))"}, "(setup.py)"),
        ({"pyproject.toml": '[build-system]\nrequires = ["maturin>=1"]'}, "(pyproject.toml)"),
        ({"w/_fast.pyx": "", "setup.py": "setup()"}, "(w/_fast.pyx)"),
        ({"setup.py": "setup()  # no ext_modules", "w/a.c": ""}, ""),
    ],
)
def test_compiled_modules_are_told(tmp_path: Path, files: dict[str, str | None], said: str) -> None:
    """Candidates were rejected for a module that nobody had compiled, and nothing said that nobody does."""
    commit = Git(tmp_path).commit(0, files)
    with Repository(tmp_path) as repository:
        line = told(repository, commit)
    assert said in line
    assert bool(line) is bool(said)
