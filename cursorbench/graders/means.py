"""By what a test says that something is wrong: an assertion of unittest, `pytest.raises`, numpy's testing.

Whoever makes `TestCase.assertEqual` do nothing, or `pytest.raises` content with anything, passes tests
without touching the report. So canaries and sabotaged tests fail by the same means as the tests beside them.
Not here: where they are put (`canaries.py`, `sabotage.py`).
"""

from __future__ import annotations

import ast
import random
import secrets
from collections.abc import Iterator

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


def of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """What a test function calls to assert, as it is written there, sorted; plain assertions apart."""
    own = node.args.args[0].arg if node.args.args else ""
    called = {ast.unparse(call.func) for part in node.body for call in _calls(part)}
    return sorted(name for name in called if _known(name, own))


def of_module(tree: ast.Module) -> list[str]:
    """What the tests of a module call to assert and can be called from anywhere in it, sorted.

    `self.assertX` is `TestCase.assertX` there; others only where the module imports them at its top level.
    """
    bound = {
        (alias.asname or alias.name).partition(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            own = node.args.args[0].arg if node.args.args else ""
            for name in of_function(node):
                root, _, method = name.partition(".")
                if own and root == own and method in _UNITTEST:
                    found.add(f"TestCase.{method}")
                elif root in bound:
                    found.add(name)
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


def _known(name: str, own: str) -> bool:
    root, _, method = name.partition(".")
    if own and root == own:
        return method in _UNITTEST
    if name in ("pytest.raises", "raises"):
        return True
    above, _, last = name.rpartition(".")
    return last in _NUMPY and above in ("np.testing", "numpy.testing")


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in a statement, those of what it defines inside apart."""
    if isinstance(node, _OWN):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)
