"""Write the documents of the lm-eval task `rtrl_snippets`: which name goes on with this code?

Every snippet leaves out one name that only the code before it can tell: a parameter, a local, a
constant, a loop variable, a function defined above. A model that loses the habit of copying from
its context (the first thing a small model loses under reinforcement) loses it here. Nothing of the
simulated users' files is used. Usage: python scripts/make_snippets.py (writes the file in place).
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

TARGET = Path(__file__).parents[1] / "evals" / "suites" / "tasks" / "rtrl_snippets.jsonl"
PER_FORM = 48
SEED = 20261120

NAMES = (  # noqa: SIM905
    "price tax score level amount mass width fuel count speed balance force height load order coin "
    "loan volume margin cargo stock damage rent heat row trip cart armor debt dose font toll"
).split()
VERBS = "add apply get move hit pay book scale mix fit plan track split test draw fill".split()  # noqa: SIM905
CONSTANTS = ("LIMIT", "RATE", "BASE", "FACTOR", "OFFSET", "STEP", "MAXIMUM", "MINIMUM")
LISTS = ("items", "rows", "parts", "values", "entries")
LOCALS = ("out", "total", "result", "acc", "sum")
LOOPS = ("x", "v", "e", "k")
OPERATORS = ("+", "-", "*", "//")

Document = dict[str, object]


def parameter(random: Random) -> tuple[str, str, list[str]]:
    """`def f(a, b): return a op` -> b."""
    a, b, *others = random.sample(NAMES, 5)
    text = f"def {random.choice(VERBS)}_{a}({a}, {b}):\n    return {a} {random.choice(OPERATORS)}"
    return text, b, others


def local(random: Random) -> tuple[str, str, list[str]]:
    """A sum over a list is returned by its name."""
    out, *others = random.sample(LOCALS, 4)
    many, one = random.choice(LISTS), random.choice(LOOPS)
    text = (
        f"def {random.choice(VERBS)}_{random.choice(NAMES)}({many}):\n    {out} = {random.randint(0, 9)}\n"
        f"    for {one} in {many}:\n        {out} += {one}\n    return"
    )
    return text, out, others


def constant(random: Random) -> tuple[str, str, list[str]]:
    """A constant defined above is used by its name."""
    name, *others = random.sample(CONSTANTS, 4)
    a = random.choice(NAMES)
    text = (
        f"{name} = {random.randint(2, 99)}\n\ndef {random.choice(VERBS)}_{a}({a}):\n"
        f"    return {a} {random.choice(OPERATORS)}"
    )
    return text, name, others


def loop(random: Random) -> tuple[str, str, list[str]]:
    """The loop's own variable is what is added up."""
    one, *others = random.sample(LOOPS, 4)
    out, many = random.choice(LOCALS), random.choice(LISTS)
    text = (
        f"def {random.choice(VERBS)}_{random.choice(NAMES)}({many}):\n    {out} = {random.randint(0, 9)}\n"
        f"    for {one} in {many}:\n        {out} +="
    )
    return text, one, others


def guarded(random: Random) -> tuple[str, str, list[str]]:
    """What was compared is what is returned."""
    a, b, *others = random.sample(NAMES, 5)
    text = (
        f"def {random.choice(VERBS)}_{b}({a}, {b}):\n    if {a} > {b}:\n"
        f"        return {b}\n    return {a} {random.choice(OPERATORS)}"
    )
    return text, b, others


FORMS = (parameter, local, constant, loop, guarded)


def documents() -> list[Document]:
    """All documents, the same every time."""
    random = Random(SEED)
    found: list[Document] = []
    seen: set[str] = set()
    for form in FORMS:
        made = 0
        while made < PER_FORM:
            context, answer, others = form(random)
            if context in seen:
                continue
            seen.add(context)
            choices = [answer, *others]
            random.shuffle(choices)
            found.append(
                {
                    "form": form.__name__,
                    "context": context,
                    "choices": choices,
                    "answer": choices.index(answer),
                }
            )
            made += 1
    return found


def main() -> None:
    """Write the file."""
    TARGET.write_text("".join(json.dumps(document) + "\n" for document in documents()), encoding="utf-8")
    print(f"{TARGET}: {len(documents())} documents")


if __name__ == "__main__":
    main()
