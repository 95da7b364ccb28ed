"""What somebody wants of a file: an operator, a number, a name, something left unsaid, or too much.

An intent holds the words the person types and the file as it would have to look; the model sees the
words only. Not for reactions (`reactions.py`) nor for telling whether an answer did it (`judge.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from evals.population import phrases, words
from evals.population.files import SourceFile, function_name, number

Kind = Literal["operator", "constant", "rename", "vague", "beyond"]
KINDS: tuple[Kind, ...] = ("operator", "constant", "rename", "vague", "beyond")
SHARES = (0.30, 0.28, 0.16, 0.16, 0.10)

_OPERATORS = {
    "op": words.ARITHMETIC,
    "op2": words.ARITHMETIC,
    "cmp": words.COMPARISON,
    "aug": words.AUGMENTED,
}


@dataclass(frozen=True)
class Intent:
    """One wish about one file.

    Attributes:
        kind: what kind of wish; known to the person, never told to the model.
        request: the words the person types.
        function: the function the words name; "" for a module constant.
        goal: the file's text once the wish is met; "" where `wish` tells instead.
        wish: key of `phrases.BEYOND` for a request beyond the model; "" otherwise.
        clear: the clear request behind a vague one: what the person answers when asked; "" otherwise.
    """

    kind: Kind
    request: str
    function: str
    goal: str
    wish: str = ""
    clear: str = ""


def _say(symbol: str, random: Random) -> str:
    """An operator as a symbol or as a word."""
    return symbol if random.random() < 0.5 else words.OPERATOR_WORDS[symbol][0]


def _operator(file: SourceFile, random: Random) -> Intent:
    places = [
        (index, slot)
        for index, function in enumerate(file.functions)
        for slot in function.slots
        if slot in _OPERATORS
    ]
    index, slot = random.choice(places)
    function = file.functions[index]
    old = function.slots[slot]
    taken = {function.slots.get("op"), function.slots.get("op2"), old}
    new = random.choice([value for value in _OPERATORS[slot] if value not in taken])
    request = random.choice(phrases.OPERATOR).format(
        f=function.name, old=_say(old, random), new=_say(new, random), verb=words.OPERATOR_WORDS[new][1]
    )
    return Intent("operator", request, function.name, file.with_slot(index, slot, new).text())


def _constant(file: SourceFile, random: Random) -> Intent:
    places = [
        (index, slot)
        for index, function in enumerate(file.functions)
        for slot in function.slots
        if slot in {"n", "m"}
    ]
    name, old = file.constant
    if name and (not places or random.random() < 0.5):
        new = _other_number({old}, random)
        request = random.choice(phrases.CONSTANT).format(k=name, old=old, new=new)
        return Intent("constant", request, "", file.with_constant(new).text())
    if not places:
        return _operator(file, random)
    index, slot = random.choice(places)
    function = file.functions[index]
    new = _other_number({function.slots.get("n", ""), function.slots.get("m", "")}, random)
    request = random.choice(phrases.NUMBER).format(f=function.name, old=function.slots[slot], new=new)
    return Intent("constant", request, function.name, file.with_slot(index, slot, new).text())


def _other_number(taken: set[str], random: Random) -> str:
    while (new := number(random)) in taken:
        pass
    return new


def _rename(file: SourceFile, domain: str, random: Random) -> Intent:
    index = random.randrange(len(file.functions))
    function = file.functions[index]
    if random.random() < 0.25:
        slot = random.choice([slot for slot in ("a", "b", "v") if slot in function.slots])
        taken = set(function.slots.values())
        names = words.RESULT_NAMES if slot == "v" else words.DOMAINS[domain][0]
        new = random.choice([name for name in names if name not in taken])
        request = random.choice(phrases.RENAME_VARIABLE).format(
            f=function.name, old=function.slots[slot], new=new
        )
        return Intent("rename", request, function.name, file.with_slot(index, slot, new).text())
    names_taken = {other.name for other in file.functions}
    while (new := function_name(domain, random)) in names_taken:
        pass
    request = random.choice(phrases.RENAME).format(f=function.name, g=new)
    return Intent("rename", request, function.name, file.with_slot(index, "f", new).text())


def _vague(file: SourceFile, random: Random) -> Intent:
    meant = (_operator if random.random() < 0.5 else _constant)(file, random)
    if not meant.function:  # a module constant: nobody says "fix LIMIT"
        meant = _operator(file, random)
    request = random.choice(phrases.VAGUE).format(f=meant.function)
    return Intent("vague", request, meant.function, meant.goal, clear=meant.request)


def _beyond(file: SourceFile, random: Random) -> Intent:
    wish = random.choice(tuple(phrases.BEYOND))
    function = random.choice(file.functions)
    request = random.choice(phrases.BEYOND[wish]).format(f=function.name)
    return Intent("beyond", request, function.name, "", wish=wish)


def draw_intent(file: SourceFile, domain: str, random: Random) -> Intent:
    """A wish about the file, of a kind drawn with `SHARES`."""
    kind = random.choices(KINDS, SHARES)[0]
    if kind == "operator":
        return _operator(file, random)
    if kind == "constant":
        return _constant(file, random)
    if kind == "rename":
        return _rename(file, domain, random)
    return _vague(file, random) if kind == "vague" else _beyond(file, random)


def solvable_line_by_line(before: str, goal: str) -> bool:
    """Whether every line that has to change stands in the file once, so that one edit can name it."""
    changed = [
        old.strip() for old, new in zip(before.splitlines(), goal.splitlines(), strict=True) if old != new
    ]
    return all(before.count(line) == 1 for line in changed)
