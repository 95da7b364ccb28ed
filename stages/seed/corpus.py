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

import numpy as np
from numpy.typing import NDArray

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
SHARED_WEIGHT = 0.1  # weight of predicting the shared beginning: it teaches to copy names
REQUEST_WEIGHT = 0.0


@dataclass(frozen=True)
class Row:
    """Tokens of one file's row, all [T].

    Attributes:
        tokens: ids.
        branch: 0 for the shared beginning, then 1, 2, ... per request.
        position: position within the sequence the token would stand in on its own.
        weight: loss weight of predicting this token.
    """

    tokens: NDArray[np.int16]
    branch: NDArray[np.int16]
    position: NDArray[np.int16]
    weight: NDArray[np.float32]


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


def make_row(random: Random, branches: int, manner: Manner, encode: Encode) -> Row:
    """One file with its requests, tokenised."""
    cases = draw_cases(random, branches)
    beginning = render_system(SYSTEM, DEFAULT_TOOLS) + USER + message(cases[0].path, cases[0].before, "")
    texts, spans = [beginning], [(0, SHARED_WEIGHT)]
    for index, case in enumerate(cases, 1):
        for text, spoken in branch(case, manner, random):
            texts.append(text)
            spans.append((index, 1.0 if spoken else REQUEST_WEIGHT))
    encoded = encode(texts)
    tokens = [token for piece in encoded for token in piece]
    owner = [span[0] for span, piece in zip(spans, encoded, strict=True) for _ in piece]
    weight = [span[1] for span, piece in zip(spans, encoded, strict=True) for _ in piece]
    position, at = [], 0
    for index, here in enumerate(owner):
        at = len(encoded[0]) if index and here != owner[index - 1] else at
        position.append(at)
        at += 1
    return Row(
        np.array(tokens, np.int16),
        np.array(owner, np.int16),
        np.array(position, np.int16),
        np.array(weight, np.float32),
    )


def rows(seed: int, branches: int, manner: Manner, encode: Encode) -> Iterator[Row]:
    """Rows without end, the same for the same seed."""
    random = seeded("seed-demonstrations", seed)
    while True:
        yield make_row(random, branches, manner, encode)


def texts(seed: int, count: int, manner: Manner) -> Iterator[str]:
    """Plain stretches of text for the tokenizer: no special token, no piece of a call in them."""
    random = seeded("seed-tokenizer", seed)
    whole = re.compile("|".join(map(re.escape, (*SPECIAL_TOKENS, *CALL_PIECES))))
    for _ in range(count):
        cases = draw_cases(random, 4)
        parts = [render_system(SYSTEM, DEFAULT_TOOLS), f"{cases[0].path}\n{cases[0].before}\n"]
        parts += [text for case in cases for text, _ in branch(case, manner, random)]
        yield from (stretch for part in parts for stretch in whole.split(part) if stretch)
