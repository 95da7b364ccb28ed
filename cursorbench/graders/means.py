"""By what a test says that something is wrong: an assertion of unittest, `pytest.raises`, numpy's testing.

Whoever makes `TestCase.assertEqual` do nothing, or `pytest.raises` content with anything, passes tests
without touching the report. So canaries and sabotaged tests fail by the same means as the tests beside them.
Not here: where they are put (`canaries.py`, `sabotage.py`).
"""

from __future__ import annotations

import ast
import random
import secrets
from collections.abc import Collection, Iterable, Iterator

# arguments with which an assertion holds where {c} is true, and fails where it is false
_UNITTEST = {
    "assertEqual": "{c}, True",
    "assertNotEqual": "{c}, False",
    "assertTrue": "{c}",
    "assertFalse": "not {c}",
    "assertIs": "{c}, True",
    "assertIsNot": "{c}, False",
    "assertIsNone": "None if {c} else 0",
    "assertIsNotNone": "0 if {c} else None",
    "assertIn": "{c}, (True,)",
    "assertNotIn": "{c}, (False,)",
    "assertIsInstance": "0 if {c} else '', int",
    "assertNotIsInstance": "0 if {c} else '', str",
    "assertAlmostEqual": "float({c}), 1.0",
    "assertNotAlmostEqual": "float({c}), 0.0",
    "assertGreater": "int({c}), 0",
    "assertGreaterEqual": "int({c}), 1",
    "assertLess": "0, int({c})",
    "assertLessEqual": "1, int({c})",
    "assertRegex": "str({c}), 'True'",
    "assertNotRegex": "str({c}), 'False'",
    "assertCountEqual": "[{c}], [True]",
    "assertListEqual": "[{c}], [True]",
    "assertTupleEqual": "({c},), (True,)",
    "assertSequenceEqual": "[{c}], [True]",
    "assertSetEqual": "{{{c}}}, {{True}}",
    "assertDictEqual": "{{0: {c}}}, {{0: True}}",
    "assertMultiLineEqual": "str({c}), 'True'",
    "assertRaises": "IndexError, (0,).__getitem__, int({c})",
    "assertRaisesRegex": "IndexError, 'range', (0,).__getitem__, int({c})",
}
_NUMPY = (
    "assert_equal",
    "assert_array_equal",
    "assert_allclose",
    "assert_almost_equal",
    "assert_array_almost_equal",
)
_OWN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def imported(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """What pytest's `raises` and numpy's testing are called in a module, by the imports among these nodes.

    A `raises` of another library may be content with nothing raised, so its name alone tells nothing.
    """
    found: set[str] = set()
    for node in nodes:
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            name, called = alias.name, alias.asname or alias.name
            source = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if (source, name) == ("pytest", "raises") and not alias.asname:
                found.add(name)
            elif not source and name == "pytest":
                found.add(f"{called}.raises")
            elif source == "numpy.testing" and name in _NUMPY and not alias.asname:
                found.add(name)
            elif f"{source}.{name}".strip(".") == "numpy.testing":
                found |= {f"{called}.{one}" for one in _NUMPY}
            elif not source and name == "numpy":
                found |= {f"{called}.testing.{one}" for one in _NUMPY}
    return frozenset(found)


def of_function(node: ast.FunctionDef | ast.AsyncFunctionDef, known: Collection[str]) -> list[str]:
    """What a test function calls to assert, as it is written there, sorted; plain assertions apart.

    `known`: of `imported`.
    """
    own = node.args.args[0].arg if node.args.args else ""
    called = {ast.unparse(call.func) for part in node.body for call in _calls(part)}
    return sorted(name for name in called if name in known or _is_method(name, own))


def of_module(tree: ast.Module) -> list[str]:
    """What the tests of a module call to assert and can be called from anywhere in it, sorted.

    `self.assertX` is `TestCase.assertX` there; others only where the module imports them at its top level.
    """
    known = imported(tree.body)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            for name in of_function(node, known):
                found.add(name if name in known else f"TestCase.{name.partition('.')[2]}")
    return sorted(found)


def condition(holds: bool, draw: random.Random) -> str:
    """An expression that is true or false, and does not say which."""
    word = secrets.token_hex(8)
    total = sum(map(ord, word)) % 97
    said = total if holds else (total + draw.randrange(1, 97)) % 97
    return f"(sum(map(ord, {word!r})) % 97 == {said})"


def statement(name: str, said: str) -> list[str]:
    """Lines that pass by the means `name` where the expression `said` is true, and fail where it is not."""
    method = name.rpartition(".")[2]
    if method in _UNITTEST:
        return [f"{name}({_UNITTEST[method].format(c=said)})"]
    if method in _NUMPY:
        return [f"{name}(1 * {said}, 1)"]
    return [f"with {name}(IndexError):", f"    (0,)[int({said})]"]


def _is_method(name: str, own: str) -> bool:
    root, _, method = name.partition(".")
    return bool(own) and root == own and method in _UNITTEST


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in a statement, those of what it defines inside apart."""
    if isinstance(node, _OWN):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)
