"""The seed model's training rows: one file, several requests about it, an answer to each.

The file is read once for all its requests: a row is the shared beginning (system prompt, file) and
branches that see the beginning and themselves only, so that a token predicted costs half of what it
would in separate sequences and means exactly the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from cursorbench.harness.tools import DEFAULT_TOOLS
from evals.population import phrases, words
from evals.population.files import draw_file
from evals.population.intents import draw_intent, solvable_line_by_line
from evals.population.people import SYSTEM, Case, message, person, seeded
from stages.seed.demonstrations import QUESTIONS, Manner, demonstrate
from stages.seed.format import ASSISTANT, CALL_PIECES, END, SPECIAL_TOKENS, USER, render_system

Encode = Callable[[list[str]], list[list[int]]]

ANSWERED = 0.08  # share of requests that come as the answer to the model's question
REPEATED = 0.06  # share of requests that come as an angry repetition


@dataclass(frozen=True)
class Row:
    """Token ids of one file's row: the shared beginning, and each branch with what of it the model says."""

    beginning: list[int]
    branches: list[list[int]]
    spoken: list[list[bool]]

    @property
    def length(self) -> int:
        """Tokens of the longest sequence in it."""
        return len(self.beginning) + max(map(len, self.branches))


def draw_cases(random: Random, branches: int) -> list[Case]:
    """Several wishes about one file."""
    domain = random.choice(tuple(words.DOMAINS))
    who = replace(person("train", 0, 0), domain=domain)
    file = draw_file(domain, random)
    before = file.text()
    cases: list[Case] = []
    while len(cases) < branches:
        intent = draw_intent(file, domain, random)
        if intent.goal and not solvable_line_by_line(before, intent.goal):
            if random.random() < 0.01:  # a file about which little can be asked
                return draw_cases(random, branches)
            continue
        text = message(file.path, before, intent.request)
        cases.append(Case("seed", who, 0.0, 0, intent, file.path, before, text))
    return cases


def clear_case(case: Case) -> Case:
    """The case once the question was answered: a clear request."""
    if case.kind != "vague":
        return case
    return replace(case, intent=replace(case.intent, kind="operator", request=case.intent.clear))


def branch(case: Case, manner: Manner, random: Random) -> list[tuple[str, bool]]:
    """What follows the file: the words, the answer, and what came between."""
    chance = random.random()
    request = case.intent.request
    if chance < ANSWERED and case.kind != "beyond":
        question = random.choice(QUESTIONS)
        clear = clear_case(case)
        between = f"{END}{ASSISTANT}{question}{END}{USER}{clear.intent.request}"
        return [(request + between + END, False), *demonstrate(clear, manner, random)]
    if chance < ANSWERED + REPEATED:
        request = random.choice(phrases.REPEATS).format(request=request)
    return [(request + END, False), *demonstrate(case, manner, random)]


def beginning(case: Case) -> str:
    """The text that all requests about a file share."""
    return render_system(SYSTEM, DEFAULT_TOOLS) + USER + message(case.path, case.before, "")


def make_row(random: Random, branches: int, manner: Manner, encode: Encode) -> Row:
    """One file with its requests, tokenised."""
    cases = draw_cases(random, branches)
    parts = [branch(case, manner, random) for case in cases]
    encoded = iter(encode([beginning(cases[0]), *(text for part in parts for text, _ in part)]))
    first = next(encoded)
    ids: list[list[int]] = []
    spoken: list[list[bool]] = []
    for part in parts:
        pieces = [(next(encoded), says) for _, says in part]
        ids.append([token for piece, _ in pieces for token in piece])
        spoken.append([says for piece, says in pieces for _ in piece])
    return Row(first, ids, spoken)


def texts(seed: int, count: int, manner: Manner) -> Iterator[str]:
    """Plain stretches of text for the tokenizer: no special token, no piece of a call in them."""
    random = seeded("seed-tokenizer", seed)
    whole = re.compile("|".join(map(re.escape, (*SPECIAL_TOKENS, *CALL_PIECES))))
    for _ in range(count):
        cases = draw_cases(random, 4)
        parts = [render_system(SYSTEM, DEFAULT_TOOLS), f"{cases[0].path}\n{cases[0].before}\n"]
        parts += [text for case in cases for text, _ in branch(case, manner, random)]
        yield from (stretch for part in parts for stretch in whole.split(part) if stretch)
