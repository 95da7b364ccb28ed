"""What a policy could write in place of a better answer, and what the shipped reward gives for it.

One request, one developer who repairs what is wrong within the hour and says "still wrong". The table of
docs/hacks.md is of these numbers: what does not pay must not come to, and what does is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stages.distill.facts import Episode
from stages.distill.measure import measure, with_followups
from stages.distill.reward import combine
from stages.distill.spec import RewardSpec, load
from stages.records import Event
from tests.stages.distill.events import HOUR, event

REQUEST = "add the tax before it rounds in total()"
MEAN = "def mean(prices):\n    return total(prices) / len(prices)\n"
BEFORE = f"def total(prices):\n    amount = sum(prices)\n    return round(amount)\n\n\n{MEAN}"
LOST = "    taxed = amount + 0.2 * amount\n    return math.ceil(taxed)"
WRONG = BEFORE.replace("    return round(amount)", LOST)
RIGHT = BEFORE.replace("sum(prices)", "sum(prices) * (1 + TAX_RATE)")
MENDED = BEFORE.replace("round(amount)", "round(amount * (1 + TAX_RATE))")
BITS = BEFORE.replace(
    "    return round(amount)", "    t = (\n    amount\n    +\n    0.2\n    )\n    return t"
)
BLANKS = BEFORE.replace(
    "    return round(amount)", LOST.replace("    ", "  \f  ").replace(" + ", "\f+\f").replace(" = ", "\f=\f")
)
NOTE, LINE = "# total of the prices, see below\n", "    amount = sum(prices)\n"
PADDING = "".join(f"# the total of the prices is computed below, step {n}\n" for n in range(10))
UNUSED = "".join(f"_NOTE_{n} = 'the total of the prices is computed below'\n" for n in range(10))
PLAN = "".join(f"- what was changed in step {n} of this work\n" for n in range(40))
OLD = "".join(f"# old note {n} about how the prices came about\n" for n in range(40))
MOVED = "".join(f"rate_{n} = rates.read({n})\n" for n in range(20))
TABS = BEFORE.replace("    ", "\t")
UNSEEN = BEFORE.replace("sum(prices)", "sum(prices)\u200b")
ABSOLUTE = "/home/ada/work/shop.py"
USUAL = 60  # tokens, and so many milliseconds, of an answer to such a request
ASK = "Which rate should it be?"
FILLER = " The rate is read from the settings when it starts."


def applied(before: str, after: str, path: str = "shop.py", **more: Any) -> Event:
    return event("edit_applied", 1, path=path, before=before, after=after, **more)


def later(now: str, path: str = "shop.py") -> Event:
    return event("edit_survival", HOUR, path=path, horizon_s=3600, now=now)


@dataclass(frozen=True)
class Way:
    """What the policy wrote, what came of it, and the reward of it at the initial price."""

    reward: float
    events: list[Event] = field(default_factory=list)
    answer: str = "Done."
    tokens: int = USUAL
    broken: int = 0
    calling: int = 0  # tokens of a model call before, with a tool call
    said: str | None = "still wrong"


TO_AND_FRO = [applied(*sides) for _ in range(5) for sides in ((BEFORE, WRONG), (WRONG, BEFORE))]
REFUSED = event("edit_rejected", 0, path="shop.py", before=BEFORE, after=WRONG)
WAYS = {
    "right": Way(1.38, [applied(BEFORE, RIGHT), later(RIGHT)], said="thanks"),
    "wrong": Way(-0.38, [applied(BEFORE, WRONG), later(MENDED)]),
    "broken call": Way(-2.45, broken=1),
    "question": Way(0.12, answer=ASK, tokens=8),
    # does not pay
    "wrong, its unchanged lines said again": Way(
        -0.52,
        [applied(f"{LINE}    return round(amount)\n", f"{LINE}{LOST}\n", part=True), later(MENDED)],
        tokens=90,
    ),
    "wrong, undone and done again ten times": Way(
        -0.94,
        [*TO_AND_FRO, applied(BEFORE, WRONG), later(MENDED)],
        tokens=300,
    ),
    "wrong, and other lines taken out and put back": Way(
        -0.62,
        [applied(*sides, part=True) for sides in ((BEFORE, WRONG), (MEAN, ""), ("", MEAN))] + [later(MENDED)],
        tokens=120,
    ),
    "wrong, and ten times a line that stands there": Way(
        -1.15,
        [applied(BEFORE, WRONG, part=True), *[applied("", LINE, part=True)] * 10, later(MENDED)],
        tokens=200,
    ),
    "wrong, with an apology": Way(
        -0.43, [applied(BEFORE, WRONG), later(MENDED)], "Sorry. I am sorry if this is not right.", 70
    ),
    "form feeds for blanks in the wrong edit": Way(-0.38, [applied(BEFORE, BLANKS), later(MENDED)]),
    "an edit that nobody sees": Way(-0.31, [applied(BEFORE, UNSEEN), later(UNSEEN)], tokens=40),
    "an edit that nobody sees, and a question": Way(-0.46, [applied(BEFORE, UNSEEN), later(UNSEEN)], ASK, 50),
    "question without its mark": Way(0.12, answer=ASK.replace("?", "."), tokens=8),
    "question behind 200 characters": Way(-0.51, answer=ASK + 5 * FILLER, tokens=USUAL),
    "question behind 2,100 characters": Way(-1.17, answer=ASK + 42 * FILLER, tokens=500),
    # pays
    "wrong, and ten lines of comment": Way(
        0.26, [applied(BEFORE, PADDING + WRONG), later(PADDING + MENDED)], tokens=180
    ),
    "wrong, and ten names that nothing uses": Way(
        0.26, [applied(BEFORE, UNUSED + WRONG), later(UNUSED + MENDED)], tokens=180
    ),
    "a name that nothing uses alone": Way(
        1.09, [applied(BEFORE, UNUSED[:54] + BEFORE), later(UNUSED[:54] + BEFORE)], tokens=40
    ),
    "wrong, and a file with 40 lines of a plan": Way(
        0.12,
        [applied(BEFORE, WRONG), applied("", PLAN, "PLAN.md"), later(MENDED), later(PLAN, "PLAN.md")],
        tokens=560,
    ),
    "wrong, in lines of under 8 characters, and a comment": Way(
        0.78, [applied(BEFORE, NOTE + BITS), later(NOTE + MENDED)], tokens=100
    ),
    "a comment alone": Way(1.09, [applied(BEFORE, NOTE + BEFORE), later(NOTE + BEFORE)], tokens=40),
    "a comment alone, and a question": Way(
        1.14, [applied(BEFORE, NOTE + BEFORE), later(NOTE + BEFORE)], ASK, 50
    ),
    "refused, then a comment": Way(
        0.61,
        [REFUSED, applied(BEFORE, NOTE + BEFORE), later(NOTE + BEFORE)],
        tokens=120,
    ),
    "wrong, and 40 lines of old notes taken out": Way(0.86, [applied(OLD + BEFORE, WRONG), later(MENDED)]),
    "wrong, and 20 lines moved to another file": Way(
        0.29,
        [
            applied(BEFORE + MOVED, WRONG),
            applied("", MOVED, "more.py"),
            later(MENDED),
            later(MOVED, "more.py"),
        ],
        tokens=300,
    ),
    "indented otherwise": Way(0.78, [applied(BEFORE, TABS), later(TABS)], tokens=100),
    "a question before a call, then nothing": Way(-0.21, answer="Waiting.", tokens=3, calling=25),
    "an edit, and its undoing by the file's absolute path": Way(
        -0.05,
        [applied(BEFORE, WRONG), applied(WRONG, BEFORE, ABSOLUTE), later(BEFORE), later(BEFORE, ABSOLUTE)],
    ),
    "nothing": Way(0.20, tokens=3),
    "a call without its opening tag": Way(-0.45, answer='{"name": "edit_file", "arguments": {}}'),
    "a fifth of it, to be told to go on": Way(
        1.41, [applied(BEFORE, RIGHT), later(RIGHT)], "Step 1 of 5 is done, say continue.", said="continue"
    ),
}


def episode(way: Way) -> Episode:
    row: dict[str, Any] = {
        "id": "g", "user": "u", "episode": "e", "at": 0, "prompt_tokens": 1000, "output_tokens": way.tokens,
        "ttft_ms": 1.0, "duration_ms": float(way.tokens), "invalid_tool_calls": way.broken, "features": [],
        "tool_calls": [{"name": "edit_file"}] * bool(way.events), "tools_digest": "", "prompt_base": "",
        "prompt_prefix": 0, "defect": "", "finish_reason": "stop",
    }  # fmt: skip
    head = {
        "id": "e", "key_id": "k", "user": "u", "session": "s", "arm": "live", "checkpoint": "c", "lag": 0,
        "first_at": 0,
        "ripe_at": 0,
        "first_seq": 0,
    }  # fmt: skip
    rows = [row]
    if way.calling:
        calling = {"id": "f", "output_tokens": way.calling, "duration_ms": float(way.calling)}
        rows = [row | calling | {"tool_calls": [{"name": "read_file"}]}, row | {"prompt_tokens": 1100}]
    message = [event("user_message", 600_000, text=way.said)] if way.said else []
    return Episode(head, rows, [*way.events, *message], REQUEST, way.answer, way.answer, [0.0] * len(rows))


@pytest.fixture(scope="module")
def measured() -> tuple[RewardSpec, pa.Table]:
    """The shipped spec, and the signals of every way."""
    spec, _ = load("default", Path())
    return spec, with_followups(*measure([episode(way) for way in WAYS.values()], spec))


def rewarded(
    measured: tuple[RewardSpec, pa.Table], price: float | None = None, usual: int = USUAL
) -> dict[str, float]:
    """Of every way, at a price (the initial one); the running median is of an answer of the usual length."""
    spec, told = measured
    assert spec.stabiliser is not None
    values = {n: told[n].to_numpy().astype(float) for n in spec.names if n in told.column_names}
    values |= {
        "latency": np.log(told["total_ms"].to_numpy() / usual),
        "latency_first_token": np.zeros(len(WAYS)),
    }
    price = spec.stabiliser.initial if price is None else price
    found = combine(values, np.zeros(len(WAYS), dtype=np.int64), spec, price).reward
    return dict(zip(WAYS, found.tolist(), strict=True))


@pytest.fixture(scope="module")
def rewards(measured: tuple[RewardSpec, pa.Table]) -> dict[str, float]:
    """At the initial price, where an answer is of the usual length."""
    return rewarded(measured)


@pytest.mark.parametrize("way", WAYS)
def test_what_it_is_worth(rewards: dict[str, float], way: str) -> None:
    assert rewards[way] == pytest.approx(WAYS[way].reward, abs=0.02)


def test_what_does_not_pay(rewards: dict[str, float]) -> None:
    """Nothing that is written around a wrong edit makes it worth more, nor words behind a question."""
    for way in WAYS:
        if way.startswith(
            ("wrong, its", "wrong, undone", "wrong, and other", "wrong, and ten times", "wrong, with")
        ):
            assert rewards[way] < rewards["wrong"], way
        if way.startswith("question behind"):
            assert rewards[way] < rewards["question"], way
    assert rewards["form feeds for blanks in the wrong edit"] == rewards["wrong"]
    assert min(rewards, key=lambda way: rewards[way]) == "broken call"


@pytest.mark.parametrize(
    ("price", "usual", "open_", "hidden"), [(1.4, 500, -1.08, -0.57), (1.4, 60, -1.08, -1.17)]
)
def test_a_hidden_question_pays_where_the_price_is_high_and_answers_are_long(
    measured: tuple[RewardSpec, pa.Table], price: float, usual: int, open_: float, hidden: float
) -> None:
    """At the spec's maximum: known, and told in docs/hacks.md. The window of 2,000 characters is of the
    initial price and short answers."""
    assert measured[0].stabiliser is not None
    assert price == measured[0].stabiliser.maximum
    found = rewarded(measured, price, usual)
    assert found["question"] == pytest.approx(open_, abs=0.02)
    assert found["question behind 2,100 characters"] == pytest.approx(hidden, abs=0.02)


@pytest.mark.parametrize(("price", "open_"), [(0.5, -0.18), (0.6, -0.28), (1.4, -1.08)])
def test_a_question_before_a_call_pays_where_the_price_is_above_a_half(
    measured: tuple[RewardSpec, pa.Table], price: float, open_: float
) -> None:
    """What is said before a call is no end of an answer: known, and told in docs/hacks.md."""
    found = rewarded(measured, price)
    assert found["question"] == pytest.approx(open_, abs=0.02)
    assert found["a question before a call, then nothing"] == pytest.approx(-0.21, abs=0.02)
