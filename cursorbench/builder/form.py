"""Whether a Python file's change is one of form only: layout, comments, docstrings, annotations.

    same_but_form(old, new)   whether it is
    changed_tests(old, new)   the tests that differ in more than form

A commit that only formats, annotates or sorts imports fails no test, and running its tests costs minutes.
What cannot be parsed counts as changed. Not for: other languages; whether a test tells (`validate.py`).
"""

from __future__ import annotations

import ast

_FOR_TYPES = frozenset({"__future__", "typing", "typing_extensions", "types", "collections.abc"})


def same_but_form(old: str, new: str) -> bool:
    """Whether two texts of a Python file do the same when they are run."""
    was, now = parsed(old), parsed(new)
    return was is not None and now is not None and _said(was) == _said(now)


def changed_tests(old: str, new: str) -> bool:
    """Whether a statement of the module or of a class in it (a test, mostly) is new but for its form.

    Deleted ones alone tell nothing.
    """
    was, now = parsed(old), parsed(new)
    if was is None or now is None:
        return True
    return bool(set(_blocks(now)) - set(_blocks(was)))


def parsed(text: str) -> ast.Module | None:
    """The tree of a Python file; None where there is none."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _said(tree: ast.AST) -> str:
    return ast.dump(_Bare().visit(tree))


def _blocks(tree: ast.Module) -> list[str]:
    """Each statement of a module, those of classes one by one."""
    found = []
    for node in _Bare().visit(tree).body:
        if isinstance(node, ast.ClassDef):
            found += [f"{node.name}: {ast.dump(inner)}" for inner in node.body]
        else:
            found.append(ast.dump(node))
    return found


class _Bare(ast.NodeTransformer):
    """Takes out what does nothing: docstrings, annotations, imports of what annotations use, `pass`."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._block(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self._block(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._block(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._block(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # a field of a dataclass does something by its name alone
        value = ast.Constant(None) if node.value is None else self.visit(node.value)
        return ast.Assign(targets=[node.target], value=value)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return ast.Pass() if node.module in _FOR_TYPES else node

    def visit_If(self, node: ast.If) -> ast.AST:
        if not node.orelse and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            return ast.Pass()
        return self._block(node)

    def _block(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        body = getattr(node, "body", [])
        node.body = [one for one in body if not _silent(one)]  # type: ignore[attr-defined]
        return node


def _silent(node: ast.AST) -> bool:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or isinstance(node, ast.Pass)
