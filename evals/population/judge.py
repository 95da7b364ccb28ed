"""Whether the code now does what the person meant, and if not, how it is wrong.

Compares syntax trees, and where these differ executes both files in a bounded evaluator: `2 * x` is
as right as `x * 2`. In process and below a millisecond; no model-written code is run by Python. The
judge is the simulated person's insight into their own wish; the learner never sees a verdict.
"""

from __future__ import annotations

import ast
from enum import StrEnum
from pathlib import Path

from evals.population.evaluator import CodeError, UnsupportedError, run_error, same_behaviour
from evals.population.people import Case

MAX_CODE = 20_000  # characters; what is longer is no answer to any request here


class Verdict(StrEnum):
    """What became of the code."""

    RIGHT = "right"
    WRONG_VALUE = "wrong_value"  # only the right place changed, to something else
    WRONG_PLACE = "wrong_place"  # something else changed
    BROKEN = "broken"  # it is no Python any more
    UNCHANGED = "unchanged"


def parse(text: str) -> ast.Module | None:
    """The text's syntax tree, or None when it is no Python."""
    if len(text) > MAX_CODE:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
    return None


def _granted(wish: str, node: ast.FunctionDef | ast.AsyncFunctionDef | None) -> bool:
    """Whether a function is as a request beyond the model wants it."""
    if node is None:
        return False
    inside = list(ast.walk(node))
    match wish:
        case "docstring":
            return ast.get_docstring(node) is not None
        case "hints":
            return all(arg.annotation is not None for arg in node.args.args)
        case "none":
            return any(isinstance(part, ast.Constant) and part.value is None for part in inside)
        case "async":
            return isinstance(node, ast.AsyncFunctionDef)
        case "raise":
            return any(isinstance(part, ast.Raise) for part in inside)
    raise ValueError(f"no wish {wish!r}")


def _mentions(tree: ast.Module) -> dict[str, set[tuple[str, object]]]:
    """The names and constants that stand in each function, and, under "", in everything else."""
    found: dict[str, set[tuple[str, object]]] = {}
    for node in tree.body:
        here = found.setdefault(getattr(node, "name", ""), set())
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                here.add(("name", part.id))
            elif isinstance(part, ast.Constant):
                here.add((type(part.value).__name__, part.value))
    return found


def _does_the_same(one: ast.Module, two: ast.Module) -> bool:
    """The same tree, or the same names and numbers in another arrangement that behaves alike.

    Samples alone cannot tell `// 80` from `// 81`, or a constant nobody uses; what is mentioned can.
    """
    if ast.dump(one) == ast.dump(two):
        return True
    if _mentions(one) != _mentions(two):
        return False
    try:
        return same_behaviour(one, two)
    except (UnsupportedError, CodeError):
        return False


def _parts(tree: ast.Module) -> list[tuple[str, str]]:
    """Each top-level statement: its function's name ("" for others) and its dump."""
    return [(getattr(node, "name", ""), ast.dump(node)) for node in tree.body]


def _only_there(case: Case, before: ast.Module, after: ast.Module) -> bool:
    """Whether nothing but the function (or constant) the request names has changed."""
    old, new = _parts(before), _parts(after)
    if len(old) != len(new):
        return False
    changed = {name for (name, dump), (_, dump_now) in zip(old, new, strict=True) if dump != dump_now}
    return changed == {case.intent.function}


def judge_text(case: Case, now: str) -> Verdict:
    """The verdict on a file's text."""
    before, after = parse(case.before), parse(now)
    if before is None:
        raise ValueError(f"case {case.id}: the file is no Python to begin with")
    if after is None:
        return Verdict.BROKEN
    if ast.dump(before) == ast.dump(after):
        return Verdict.UNCHANGED
    if case.intent.goal:
        goal = parse(case.intent.goal)
        right = goal is not None and _does_the_same(goal, after)
    else:
        name = case.intent.function
        others_kept = [part for part in _parts(before) if part[0] != name] == [
            part for part in _parts(after) if part[0] != name
        ]
        right = others_kept and _granted(case.intent.wish, _function(after, name))
    if right:
        return Verdict.RIGHT
    return Verdict.WRONG_VALUE if _only_there(case, before, after) else Verdict.WRONG_PLACE


def judge(case: Case, workdir: Path) -> Verdict:
    """The verdict on the case's file as it stands in `workdir`."""
    return judge_text(case, (workdir / case.path).read_text("utf-8"))


def trace(case: Case, now: str) -> str:
    """The last line of the trace somebody gets who tries the code; "" when it runs."""
    tree = parse(now)
    if tree is None:
        return "SyntaxError: invalid syntax"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and (error := run_error(tree, node.name)):
            before = parse(case.before)
            if before is None or run_error(before, node.name) != error:
                return error
    return ""
