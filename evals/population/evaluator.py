"""A small, bounded evaluator for the Python that the population's files are made of.

Executes model-written functions without executing model-written Python: numbers, lists, arithmetic,
comparisons, assignments, `if`, `for` over lists and calls within the file, under a step limit.
Whatever else stands in the code is `Unsupported`. Used to see whether two files do the same; not a
Python implementation, and not a sandbox for anything larger.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_STEPS = 2000
MAX_DEPTH = 20
MAX_NUMBER = 10**12

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class UnsupportedError(Exception):
    """The code uses something outside of the subset, or too many steps."""


class CodeError(Exception):
    """What Python itself would have raised; the message is `Type: text`."""


class _Return(Exception):  # control flow, not an error
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _same_kind(left: Any, right: Any) -> None:
    if isinstance(left, list) or isinstance(right, list):
        raise CodeError("TypeError: unsupported operand type(s)")


class Program:
    """A parsed file ready to be called. Raises UnsupportedError when its top level is outside the subset."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions: dict[str, ast.FunctionDef] = {}
        self._globals: dict[str, Any] = {}
        self._steps = 0
        self._depth = 0
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign):
                self._assign(node.targets, self._value(node.value, self._globals), self._globals)
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                raise UnsupportedError(type(node).__name__)

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """Call a function with plain numbers or lists. Raises CodeError or UnsupportedError."""
        self._steps = 0
        self._depth = 0
        return self._call(name, list(arguments))

    def _call(self, name: str, arguments: list[Any]) -> Any:
        function = self.functions.get(name)
        if function is None:
            raise CodeError(f"NameError: name '{name}' is not defined")
        given = function.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or function.decorator_list:
            raise UnsupportedError("parameters")
        names = [argument.arg for argument in given.args]
        missing = len(names) - len(arguments)
        if missing < 0 or missing > len(given.defaults):
            raise CodeError(f"TypeError: {name}() takes {len(names)} positional arguments")
        defaults = given.defaults[len(given.defaults) - missing :] if missing else []
        values = [*arguments, *(self._value(node, self._globals) for node in defaults)]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CodeError("RecursionError: maximum recursion depth exceeded")
        try:
            self._run(function.body, dict(zip(names, values, strict=True)))
        except _Return as returned:
            return returned.value
        finally:
            self._depth -= 1
        return None

    def _tick(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise UnsupportedError("steps")

    def _run(self, body: Sequence[ast.stmt], scope: dict[str, Any]) -> None:
        for node in body:
            self._tick()
            match node:
                case ast.Return():
                    raise _Return(None if node.value is None else self._value(node.value, scope))
                case ast.Assign():
                    self._assign(node.targets, self._value(node.value, scope), scope)
                case ast.AugAssign(target=ast.Name(id=name)):
                    left = self._load(name, scope)
                    scope[name] = self._binary(node.op, left, self._value(node.value, scope))
                case ast.If():
                    self._run(node.body if self._value(node.test, scope) else node.orelse, scope)
                case ast.For(target=ast.Name(id=name), orelse=[]):
                    rows = self._value(node.iter, scope)
                    if not isinstance(rows, list):
                        raise CodeError(f"TypeError: '{type(rows).__name__}' object is not iterable")
                    for row in rows:
                        scope[name] = row
                        self._run(node.body, scope)
                case ast.Pass() | ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    raise UnsupportedError(type(node).__name__)

    def _assign(self, targets: Sequence[ast.expr], value: Any, scope: dict[str, Any]) -> None:
        for target in targets:
            if not isinstance(target, ast.Name):
                raise UnsupportedError("target")
            scope[target.id] = value

    def _load(self, name: str, scope: dict[str, Any]) -> Any:
        if name in scope:
            return scope[name]
        if name in self._globals:
            return self._globals[name]
        if name in self.functions:
            raise UnsupportedError("function as a value")
        raise CodeError(f"NameError: name '{name}' is not defined")

    def _value(self, node: ast.expr, scope: dict[str, Any]) -> Any:  # noqa: PLR0911  # one line a node type
        self._tick()
        match node:
            case ast.Constant(value=bool() | int() | float() | None as value):
                return value
            case ast.Name(id=name):
                return self._load(name, scope)
            case ast.BinOp():
                return self._binary(node.op, self._value(node.left, scope), self._value(node.right, scope))
            case ast.UnaryOp(op=ast.USub()):
                return self._binary(ast.Sub(), 0, self._value(node.operand, scope))
            case ast.Compare(ops=[one], comparators=[right]):
                return self._compare(one, self._value(node.left, scope), self._value(right, scope))
            case ast.List():
                return [self._value(item, scope) for item in node.elts]
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                return self._call(name, [self._value(item, scope) for item in node.args])
            case _:
                raise UnsupportedError(type(node).__name__)

    def _compare(self, op: ast.cmpop, left: Any, right: Any) -> bool:
        function = _COMPARE.get(type(op))
        if function is None:
            raise UnsupportedError(type(op).__name__)
        try:
            return bool(function(left, right))
        except TypeError as error:
            raise CodeError("TypeError: not comparable") from error

    def _binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        function = _BINARY.get(type(op))
        if function is None:
            raise UnsupportedError(type(op).__name__)
        _same_kind(left, right)
        try:
            value = function(left, right)
        except ZeroDivisionError as error:
            raise CodeError("ZeroDivisionError: division by zero") from error
        except TypeError as error:
            raise CodeError("TypeError: unsupported operand type(s)") from error
        if abs(value) > MAX_NUMBER:
            raise UnsupportedError("size")
        return value


# what functions are called with: every parameter gets its own column
_SAMPLES: tuple[tuple[int, ...], ...] = (
    (7, 3, 5),
    (3, 7, 2),
    (0, 1, 4),
    (5, 5, 5),
    (41, 12, 9),
    (-6, 8, 3),
    (98, 97, 11),
)
_LISTS: tuple[tuple[int, ...], ...] = ((), (4, 9, 2), (1, 1, 30, 7))


def _outcome(program: Program, name: str, arguments: Sequence[Any]) -> object:
    try:
        return program.call(name, arguments)
    except CodeError as error:
        return str(error).split(":", 1)[0]


def signature(program: Program) -> dict[str, list[str]]:
    """Function names with their parameter names."""
    return {name: [arg.arg for arg in node.args.args] for name, node in program.functions.items()}


def _numbers(trees: Sequence[ast.Module]) -> list[int]:
    """The numbers that stand in the code, with their neighbours: the edges of its comparisons."""
    found = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and type(node.value) is int
    }
    return sorted({value + step for value in found if abs(value) < 10**6 for step in (-1, 0, 1)})


def same_behaviour(one: ast.Module, two: ast.Module) -> bool:
    """Whether two files have the same functions and these answer alike on sample inputs.

    Raises UnsupportedError when either is outside of the subset.
    """
    first, second = Program(one), Program(two)
    names = signature(first)
    if names != signature(second):
        return False
    edges = _numbers((one, two))
    for name, parameters in names.items():
        calls: list[list[Any]] = [list(row[: len(parameters)]) for row in _SAMPLES]
        # once with every parameter given, once with the last one left to its default
        for given in range(max(0, len(parameters) - 1), len(parameters) + 1):
            calls += [[edge] * given for edge in edges]
        if parameters:
            calls += [[list(row), *([2] * (len(parameters) - 1))] for row in _LISTS]
        if any(_outcome(first, name, call) != _outcome(second, name, call) for call in calls):
            return False
    return True


def run_error(tree: ast.Module, name: str) -> str:
    """What calling `name` with plain numbers raises ("" for nothing): the trace a person would paste."""
    try:
        program = Program(tree)
        if name not in program.functions:
            return ""
        program.call(name, _SAMPLES[0][: len(program.functions[name].args.args)])
    except CodeError as error:
        return str(error)
    except UnsupportedError:
        return ""
    return ""
