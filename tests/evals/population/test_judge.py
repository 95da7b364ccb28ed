"""The judge on edits made by hand."""

import ast
import time

import pytest

from evals.population.evaluator import CodeError, Program, UnsupportedError, same_behaviour
from evals.population.intents import Intent
from evals.population.judge import Verdict, judge, judge_text, trace
from evals.population.people import Case, person

BEFORE = """LIMIT = 7

def net(price, tax):
    return price + tax

def cap(price):
    if price > 40:
        return 40
    return price

def bill(price):
    return cap(price) * 2
"""

NET = "    return price + tax"
BILL = "    return cap"
NONE = "    if price is None:\n        return None\n"
RAISE = "    if price < 0:\n        raise ValueError\n"


def case(request, goal="", function="net", kind="operator", wish=""):
    intent = Intent(kind, request, function, goal, wish)
    return Case("c", person("train", 0, 0), 0.0, 0, intent, "shop.py", BEFORE, "")


MINUS = case("minus in net", BEFORE.replace("price + tax", "price - tax"))
TIMES = case("times in net", BEFORE.replace("price + tax", "price * tax"))
LIMIT = case("LIMIT = 9", BEFORE.replace("LIMIT = 7", "LIMIT = 9"), "", "constant")
RENAME = case("rename cap to top", BEFORE.replace("cap", "top"), "cap", "rename")
BEYOND = {
    wish: case(wish, function="net", kind="beyond", wish=wish)
    for wish in ("docstring", "hints", "none", "async", "raise")
}


@pytest.mark.parametrize(
    ("wanted", "now", "verdict"),
    [
        (MINUS, MINUS.intent.goal, Verdict.RIGHT),
        (MINUS, MINUS.intent.goal.replace("\n\n", "\n\n\n"), Verdict.RIGHT),
        (MINUS, BEFORE, Verdict.UNCHANGED),
        (MINUS, BEFORE + "# minus\n", Verdict.UNCHANGED),
        (MINUS, BEFORE.replace("price + tax", "tax - price"), Verdict.WRONG_VALUE),
        (MINUS, BEFORE.replace("price + tax", "price * tax"), Verdict.WRONG_VALUE),
        (MINUS, BEFORE.replace("* 2", "- 2"), Verdict.WRONG_PLACE),
        (MINUS, MINUS.intent.goal.replace("* 2", "- 2"), Verdict.WRONG_PLACE),
        (MINUS, BEFORE.replace("price + tax", "price - "), Verdict.BROKEN),
        (MINUS, "", Verdict.WRONG_PLACE),
        (MINUS, "x = " + "(" * 5000, Verdict.BROKEN),
        (TIMES, BEFORE.replace("price + tax", "tax * price"), Verdict.RIGHT),
        (LIMIT, LIMIT.intent.goal, Verdict.RIGHT),
        (LIMIT, BEFORE.replace("LIMIT = 7", "LIMIT = 8"), Verdict.WRONG_VALUE),
        (LIMIT, BEFORE.replace("40", "9"), Verdict.WRONG_PLACE),
        (RENAME, RENAME.intent.goal, Verdict.RIGHT),
        (RENAME, BEFORE.replace("def cap", "def top"), Verdict.WRONG_VALUE),
        (BEYOND["docstring"], BEFORE.replace(NET, '    "Sum."\n' + NET), Verdict.RIGHT),
        (BEYOND["docstring"], BEFORE.replace(BILL, '    "Sum."\n' + BILL), Verdict.WRONG_PLACE),
        (BEYOND["hints"], BEFORE.replace("net(price, tax)", "net(price: int, tax: int)"), Verdict.RIGHT),
        (BEYOND["hints"], BEFORE.replace("net(price, tax)", "net(price: int, tax)"), Verdict.WRONG_VALUE),
        (BEYOND["async"], BEFORE.replace("def net", "async def net"), Verdict.RIGHT),
        (BEYOND["none"], BEFORE.replace(NET, NONE + NET), Verdict.RIGHT),
        (BEYOND["raise"], BEFORE.replace(NET, RAISE + NET), Verdict.RIGHT),
    ],
)  # fmt: skip
def test_verdicts(wanted, now, verdict, tmp_path):
    assert judge_text(wanted, now) is verdict
    (tmp_path / "shop.py").write_text(now)
    assert judge(wanted, tmp_path) is verdict


def test_traces():
    assert trace(MINUS, "def f(:") == "SyntaxError: invalid syntax"
    half = BEFORE.replace("def cap", "def top")
    assert trace(RENAME, half) == "NameError: name 'cap' is not defined"
    assert trace(MINUS, MINUS.intent.goal) == ""


def run(source, *arguments):
    return Program(ast.parse(source)).call("f", arguments)


def test_evaluator_computes_what_python_computes():
    source = (
        "K = 3\n"
        "def g(a, b=2):\n    return a * b - K\n"
        "def f(xs):\n    t = 0\n    for x in xs:\n        if x >= 4:\n            t += g(x)\n"
        "        else:\n            t -= -x\n    return t // 2\n"
    )
    scope = {}
    exec(source, scope)
    for xs in ([], [1, 2, 3], [4, 5, 6, 1]):
        assert run(source, xs) == scope["f"](xs)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def f(a):\n    return b", "NameError: name 'b' is not defined"),
        ("def f(a):\n    return g(a)", "NameError: name 'g' is not defined"),
        ("def f(a):\n    return a // 0", "ZeroDivisionError: division by zero"),
        ("def f():\n    return 1", "TypeError: f() takes 0 positional arguments"),
        ("def f(a):\n    return f(a)", "RecursionError: maximum recursion depth exceeded"),
        ("def f(a):\n    for x in a:\n        pass", "TypeError: 'int' object is not iterable"),
    ],
)
def test_evaluator_fails_as_python_fails(source, error):
    with pytest.raises(CodeError) as caught:
        run(source, 1)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "source",
    [
        "def f(a):\n    return __import__('os').system('true')",
        "def f(a):\n    while True:\n        pass",
        "def f(a):\n    return a ** 9999999",
        "def f(a):\n    a *= 9999999\n    a *= a\n    return a",
        "def f(a):\n    return 'x' * 10",
        "def f(a):\n    return [a] * 10**9",
        "def f(a):\n    return a.__class__",
        "def f(a):\n    return f",
        "import os",
    ],
)
def test_evaluator_refuses_the_rest(source):
    with pytest.raises((UnsupportedError, CodeError)):
        run(source, 1)


def test_evaluator_stops():
    source = "def f(xs):\n    t = 0\n" + "    for x in xs:\n        t += 1\n" * 50 + "    return t\n"
    started = time.perf_counter()
    with pytest.raises(UnsupportedError):
        run(source, list(range(100)))
    assert time.perf_counter() - started < 0.5


def test_same_behaviour():
    one = ast.parse("def f(a, b=2):\n    return a < b")
    assert same_behaviour(one, ast.parse("def f(a, b=2):\n    return b > a"))
    assert not same_behaviour(one, ast.parse("def f(a, b=2):\n    return a <= b"))
    assert not same_behaviour(one, ast.parse("def f(a, b=3):\n    return a < b"))
    assert not same_behaviour(one, ast.parse("def f(a, c=2):\n    return a < c"))
