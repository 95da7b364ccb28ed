"""Small Python files as people have them: a few functions made of shapes with slots.

A file keeps its slots, so that what somebody means ("times, not plus, in `net`") is the same file
with another slot, rendered again; the judge compares with that. Not a general code generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from evals.population import words

# slots: f name, a b parameters, v result, i loop name, op arithmetic, cmp comparison, aug augmented
# assignment, n m numbers, K module constant, g another function of one parameter in the same file
SHAPES: Mapping[str, str] = {
    "binary": "def {f}({a}, {b}):\n    return {a} {op} {b}\n",
    "number": "def {f}({a}):\n    return {a} {op} {n}\n",
    "constant": "def {f}({a}):\n    return {a} {op} {K}\n",
    "clamp": "def {f}({a}):\n    if {a} {cmp} {n}:\n        return {m}\n    return {a}\n",
    "guard": "def {f}({a}, {b}):\n    if {a} {cmp} {b}:\n        return {a} {op} {n}\n    return {b}\n",
    "loop": "def {f}({a}):\n    {v} = {n}\n    for {i} in {a}:\n        {v} {aug} {i}\n    return {v}\n",
    "steps": "def {f}({a}, {b}):\n    {v} = {a} {op} {b}\n    return {v} {op2} {n}\n",
    "default": "def {f}({a}, {b}={n}):\n    return {a} {op} {b}\n",
    "test": "def {f}({a}):\n    return {a} {cmp} {n}\n",
    "caller": "def {f}({a}):\n    return {g}({a}) {op} {n}\n",
}
ONE_PARAMETER = ("number", "constant", "clamp", "test")
_VALUES: Mapping[str, tuple[str, ...]] = {
    "op": words.ARITHMETIC,
    "op2": words.ARITHMETIC,
    "cmp": words.COMPARISON,
    "aug": words.AUGMENTED,
}


@dataclass(frozen=True)
class Function:
    """One function: its shape and what stands in the slots."""

    shape: str
    slots: Mapping[str, str]

    @property
    def name(self) -> str:
        """The function's name."""
        return self.slots["f"]

    def text(self) -> str:
        """Its source."""
        return SHAPES[self.shape].format(**self.slots)

    def with_slot(self, slot: str, value: str) -> Function:
        """The same function with one slot changed."""
        return replace(self, slots={**self.slots, slot: value})


@dataclass(frozen=True)
class SourceFile:
    """A file: a module constant or none, then functions. `constant` is (name, number) or ("", "")."""

    path: str
    constant: tuple[str, str]
    functions: tuple[Function, ...]

    def text(self) -> str:
        """The file's source, functions one blank line apart."""
        name, number = self.constant
        parts = [f"{name} = {number}\n"] if name else []
        return "\n".join([*parts, *(function.text() for function in self.functions)])

    def with_slot(self, index: int, slot: str, value: str) -> SourceFile:
        """The file with one slot of one function changed; a new name is carried to the callers."""
        old = self.functions[index]
        changed = list(self.functions)
        changed[index] = old.with_slot(slot, value)
        if slot == "f":
            changed = [
                function.with_slot("g", value) if function.slots.get("g") == old.name else function
                for function in changed
            ]
        return replace(self, functions=tuple(changed))

    def with_constant(self, value: str) -> SourceFile:
        """The file with another number for its module constant."""
        return replace(self, constant=(self.constant[0], value))

    def callers(self, name: str) -> int:
        """How many functions call `name`."""
        return sum(1 for function in self.functions if function.slots.get("g") == name)


def number(random: Random) -> str:
    """A number as code has them: one or two digits."""
    return str(random.randint(2, 9) if random.random() < 0.5 else random.randint(10, 99))


def function_name(domain: str, random: Random) -> str:
    """`verb_noun` or `noun_noun`."""
    nouns, verbs = words.DOMAINS[domain]
    if random.random() < 0.6:
        return f"{random.choice(verbs)}_{random.choice(nouns)}"
    return "_".join(random.sample(nouns, 2))


def _function(shape: str, domain: str, taken: set[str], calls: str, random: Random) -> Function:
    nouns, _ = words.DOMAINS[domain]
    name = function_name(domain, random)
    while name in taken:
        name = function_name(domain, random)
    taken.add(name)
    first, second = random.sample(nouns, 2)
    one, two = number(random), number(random)
    while two == one:
        two = number(random)
    slots = {
        "f": name,
        "a": random.choice(words.LIST_NAMES) if shape == "loop" else first,
        "b": second,
        "v": random.choice(words.RESULT_NAMES),
        "i": random.choice(words.LOOP_NAMES),
        "n": one,
        "m": two,
        "g": calls,
        **{slot: random.choice(values) for slot, values in _VALUES.items()},
    }
    while slots["op2"] == slots["op"]:
        slots["op2"] = random.choice(words.ARITHMETIC)
    template = SHAPES[shape]
    return Function(shape, {slot: value for slot, value in slots.items() if f"{{{slot}}}" in template})


def _draw(domain: str, random: Random) -> SourceFile:
    taken: set[str] = set()
    wanted = random.choice((2, 3, 3))
    shapes = random.sample([shape for shape in SHAPES if shape != "caller"], wanted)
    functions = [_function(shape, domain, taken, "", random) for shape in shapes]
    constant = ("", "")
    if "constant" in shapes or random.random() < 0.2:
        constant = (random.choice(words.CONSTANT_NAMES), number(random))
    functions = [
        function.with_slot("K", constant[0]) if function.shape == "constant" else function
        for function in functions
    ]
    callees = [index for index, function in enumerate(functions) if function.shape in ONE_PARAMETER]
    if callees and random.random() < 0.35:
        callee = random.choice(callees)
        other = random.choice([index for index in range(len(functions)) if index != callee])
        functions[other] = _function("caller", domain, taken, functions[callee].name, random)
    nouns, _ = words.DOMAINS[domain]
    return SourceFile(f"{random.choice(nouns)}.py", constant, tuple(functions))


def _lines_are_distinct(text: str) -> bool:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return len(set(lines)) == len(lines)


def draw_file(domain: str, random: Random) -> SourceFile:
    """A file of two or three functions whose lines all differ."""
    while not _lines_are_distinct((drawn := _draw(domain, random)).text()):
        pass
    return drawn
