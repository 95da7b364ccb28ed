"""A team's own signals: Python functions that a reward spec names, `package.module:function`.

    [signals.comment_share]
    function = "our_signals:comment_share"    # a module on the path, or in the workspace's folder
    weight = -0.5
    unknown = 0.0

The function takes an `Answered` and returns a number, or None for not known. It must be pure: the same
episode, the same number. So each call gets a copy of its own, which it may change without anybody noticing,
and the first episodes are asked about twice. The digest of its source (`own_source.py`) is recorded with the
run and the artifact; a repeated run refuses other source, and so does whoever measures a part of this one.
What is printed goes to stderr, for stdout is the command's. Of an exception only the class is told and
the line that it comes from, for the message may quote a person. Not for: the signals that are shipped
(`signals/`).
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from stages import interrupts
from stages.distill.facts import Episode
from stages.distill.order import in_order
from stages.distill.own_source import digest_of, sources_of
from stages.distill.reward import LARGEST
from stages.distill.spec import RewardSpec
from stages.errors import IntegrityError, LateError, UsageError
from stages.identity import PACKAGES
from stages.records import Event

TWICE = 20  # episodes that a function is asked about once more


@dataclass(frozen=True)
class Answered:
    """One episode as a team's function sees it; texts as they were written, opened in memory.

    Attributes:
        request: the person's request; `answer`: the raw text of the last answer; `said`: that without what
            was thought before it.
        generations: the model calls in order, columns of generations.parquet (no tokens).
        events: what happened, in order of event time (`order.py`), data opened. Times in ms.
    """

    request: str
    answer: str
    generations: tuple[Mapping[str, Any], ...]
    events: tuple[Event, ...]
    said: str = ""


@dataclass(frozen=True)
class OwnSignal:
    """A function and the digest of the source it stands in."""

    name: str
    function: str
    digest: str
    call: Callable[[Answered], object]
    file: str = ""  # of its module
    root: Path | None = None  # where modules are looked for, also those that it imports when it is called

    def values(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Its value for each episode.

        Raises UsageError (2) when it fails, gives no number, or another one for the same episode.
        """
        with _path(self.root), contextlib.redirect_stdout(sys.stderr):
            found = [self._value(episode) for episode in episodes]
            for episode, value in zip(episodes[:TWICE], found, strict=False):
                if self._value(episode) != value:
                    raise self._wrong("gave another number when asked again", episode)
        return found

    def _value(self, episode: Episode) -> float | None:
        seen = Answered(
            episode.request,
            episode.answer,
            tuple(copy.deepcopy(episode.generations)),
            tuple(copy.deepcopy(in_order(episode.events))),
            episode.said,
        )
        wrong = ""
        try:
            value = self.call(seen)
            if value is None:
                return None
            wrong = f"gave no finite number but {type(value).__name__}"
            if isinstance(value, Real) and not isinstance(value, bool):  # numpy's are real, too
                if abs(number := float(value)) <= LARGEST:
                    return number
                wrong = f"gave a number beyond {LARGEST:g}" if abs(number) > LARGEST else wrong
        except BaseException as error:
            if _ends_the_run(error):
                raise
            wrong = f"raised {type(error).__name__}{self._line_of(error)}"
        # Raised out here, so that no log gets the function's error with it: it may quote a person's words.
        raise self._wrong(wrong, episode)

    def _line_of(self, error: BaseException) -> str:
        """Where in the function's module; a line's number quotes nobody."""
        frames = traceback.walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_code.co_filename == self.file]
        return f" in line {lines[-1]} of its module" if lines else ""

    def _wrong(self, what: str, episode: Episode) -> UsageError:
        return UsageError(
            f"signal {self.name}: {self.function} {what} for episode {episode.row['id']}",
            hint="correct the function: a number, the same each time, or None where it is not known",
        )


def _ends_the_run(error: BaseException) -> bool:
    """Whether it is the run's end and none of the function's: Ctrl-C, a deadline, a signal to the program."""
    return isinstance(error, KeyboardInterrupt | LateError) or (
        isinstance(error, SystemExit) and error.code in interrupts.SIGNALLED
    )


def load(spec: RewardSpec, root: Path) -> list[OwnSignal]:
    """The functions that the spec names; modules are also looked for in `root`, the workspace's folder.

    Raises UsageError (2) when one cannot be imported, is no function of one argument, or has no source.
    """
    return [_load(name, function, root) for name, function in spec.own.items()]


def require_same(signals: Iterable[OwnSignal], recorded: Mapping[str, Mapping[str, str]]) -> None:
    """Raise IntegrityError (12) when a function's source is not what a run recorded."""
    for signal in signals:
        if signal.digest != recorded[signal.name]["digest"]:
            raise IntegrityError(
                f"signal {signal.name}: the source of {signal.function} has changed since it was resolved",
                hint="put the recorded source back, or distill anew",
            )


def _load(name: str, function: str, root: Path) -> OwnSignal:
    module_name, _, attribute = function.partition(":")
    try:
        with _path(root), contextlib.redirect_stdout(sys.stderr):
            module, sources, file = _imported(module_name, root)
        found = getattr(module, attribute)
        inspect.signature(found).bind(None)
        if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found):
            raise TypeError("it gives no number but something to be waited for")
    except BaseException as error:
        if _ends_the_run(error):
            raise
        raise UsageError(
            f"signal {name}: {function} cannot be used: {type(error).__name__}: {error}",
            hint='name "package.module:function", a function of one argument; a module may lie in the '
            "workspace's folder",
        ) from error
    return OwnSignal(name, function, digest_of(sources), found, file, root)


_SOURCE: WeakKeyDictionary[ModuleType, dict[str, str]] = WeakKeyDictionary()  # as they were executed


def _imported(name: str, root: Path) -> tuple[ModuleType, dict[str, str], str]:
    """The module, its source with that of the team's modules that it imports, and its file; another module
    when one of these has changed, as a process may live for days."""
    module = importlib.import_module(name)
    if _top(name) not in PACKAGES and _hidden(root, _top(name)):
        raise ImportError(f"another module is called {_top(name)}, too: the workspace's needs another name")
    file = inspect.getsourcefile(module) or name
    linecache.checkcache(file)
    sources = sources_of(name, inspect.getsource(module), root)
    if (before := _SOURCE.setdefault(module, sources)) != sources:
        for other in {*before, *sources} - {name}:
            _drop(other)
        module = _anew(module, sources[name], file)
        _SOURCE[module] = sources
    return module, sources, file


def _drop(name: str) -> None:
    """Who imports this module next gets it by its source as that is then."""
    sys.modules.pop(name, None)
    package, _, own = name.rpartition(".")
    vars(sys.modules[package]).pop(own, None) if package in sys.modules else None


def _anew(module: ModuleType, source: str, file: str) -> ModuleType:
    """A module of this source in place of one that was; where it fails, that one stays.

    Not `importlib.reload`: what the new source no longer has would be left of the old one, all that a source
    did before it failed would stay, and kept bytecode counts as current where an edit left time and size.
    """
    name, spec = module.__name__, module.__spec__
    assert spec is not None
    found = importlib.util.module_from_spec(spec)
    within = {n: one for n, one in vars(module).items() if isinstance(one, ModuleType)}
    vars(found).update({n: one for n, one in within.items() if one.__name__ == f"{name}.{n}"})
    code = compile(source, file, "exec", dont_inherit=True)
    sys.modules[name] = found
    try:
        exec(code, vars(found))
    except BaseException:
        sys.modules[name] = module
        raise
    return found


_FROM: dict[str, str] = {}  # modules (the first part of their name) found in a workspace's folder: which


class _path:
    """Imports also from this folder, while it lasts; None for none.

    A module of this workspace is not the one of that name that another workspace had in this process, whether
    the spec names it or it is imported by one that is.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = None if root is None else str(root.absolute())

    def __enter__(self) -> None:
        if self._root is None:
            return
        for top in [top for top, root in _FROM.items() if root != self._root]:
            for name in [one for one in sys.modules if _top(one) == top]:
                del sys.modules[name]
            del _FROM[top]
        self._before = {*map(_top, sys.modules)}
        importlib.invalidate_caches()
        sys.path.insert(0, self._root)

    def __exit__(self, *error: object) -> None:
        if self._root is None:
            return
        sys.path.remove(self._root)
        for top in {*map(_top, sys.modules)} - self._before:
            if _stands_in(self._root, top):
                _FROM[top] = self._root


def _top(name: str) -> str:
    return name.partition(".")[0]


def _hidden(root: Path, top: str) -> bool:
    """Whether `root` has a module of this name that is not the one that is imported, as Python's own or a
    library's is loaded already. Of rtrl's parts it is theirs that are meant."""
    there = (root / f"{top}.py").is_file() or (root / top / "__init__.py").is_file()
    return there and not _stands_in(str(root.absolute()), top)


def _stands_in(root: str, top: str) -> bool:
    """Whether an imported module is a file or a folder of `root`; what lies deeper is an environment's."""
    module = sys.modules.get(top)
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(f"{place}{os.sep}".startswith((f"{root}/{top}.", f"{root}/{top}/")) for place in places)
