"""Latency, length, outcome, stabiliser, strata and the reward, by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.population.people import day_of
from stages.distill import memory, stabiliser
from stages.distill.facts import Episode
from stages.distill.measure import _before, _read
from stages.distill.reward import combine, dropped, term
from stages.distill.signals.dissatisfied_followup import EXPLICIT_NO
from stages.distill.signals.edit_persistence import edit_persistence
from stages.distill.signals.edits import edits_of
from stages.distill.signals.invalid_tool_calls import invalid_tool_calls
from stages.distill.signals.latency import Median, log_ratio, size_class, updated
from stages.distill.signals.length_cost import Lengths, length_cost, mix
from stages.distill.signals.outcome import asks, asks_by_tool, edited, without_calls
from stages.distill.spec import SignalSpec, Stabiliser, load, parse
from stages.distill.strata import language, stratum
from stages.errors import UsageError
from stages.linestate import LineState
from stages.seed import demonstrations
from tests.stages.distill.events import HOUR, event

NAN = float("nan")


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_length_cost_by_hand() -> None:
    x = floats(0, 1, 100)
    assert length_cost(x, k=0.0, q=0.5).tolist() == [0, 1, 100]
    assert length_cost(x, k=0.5, q=0.0).tolist() == [0, 1, 100]
    assert length_cost(x, k=0.01, q=1.0) == pytest.approx([0, 0.995033, 69.314718])  # 100 ln(1 + x / 100)
    assert length_cost(x, k=0.01, q=0.5) == pytest.approx(
        [0, 0.997512, 82.842712]
    )  # 200 (sqrt(1 + x/100) - 1)
    assert length_cost(x, k=0.01, q=2.0) == pytest.approx([0, 0.990099, 50.0])  # 100 (1 - 1 / (1 + x / 100))


@given(st.floats(0.001, 2), st.floats(0.1, 3), st.lists(st.floats(0, 1e5), min_size=3, max_size=3))
def test_length_cost_is_increasing_and_concave(k: float, q: float, xs: list[float]) -> None:
    a, b, c = sorted(xs)
    cost = length_cost(floats(a, b, c, (a + c) / 2), k, q)
    assert cost[0] <= cost[1] + 1e-9
    assert cost[1] <= cost[2] + 1e-9
    assert cost[3] >= (cost[0] + cost[2]) / 2 - 1e-6 * (1 + abs(cost[2]))


def test_mix() -> None:
    one = {
        name: floats(n) for n, name in enumerate(("final", "call", "thinking", "tool", "calls", "turns"), 1)
    }
    assert mix(Lengths(**one), {"final": 1.0, "call": 2.0, "tool": 0.5, "turns": 10.0}).tolist() == [67.0]


def test_latency_by_hand() -> None:
    sizes = size_class(np.array([0, 1, 2, 100, 127, 128]))
    assert sizes.tolist() == [0, 0, 1, 6, 6, 7]
    known = {"6": Median(math.log(200.0), 10.0)}
    ms = floats(100, 200, 400, NAN, -1)
    whole = np.zeros(5, bool)
    ratio = log_ratio(ms, np.array([6, 6, 6, 6, 6]), known, whole)
    assert ratio[:3] == pytest.approx([-math.log(2), 0, math.log(2)])
    assert np.isnan(ratio[3:]).all()
    # a class the line has not met is compared with its own window
    threes = np.array([3, 3, 3])
    found = log_ratio(ms[:3], threes, known, whole[:3])
    assert found == pytest.approx([-math.log(2), 0, math.log(2)])
    after = updated(ms, np.array([6, 6, 6, 6, 3]), known, 12.0, whole)
    # window of 3 with median ln 200: no move; weight 10 + 3, at most 12
    assert after == {"6": Median(pytest.approx(math.log(200.0)), 12.0)}
    moved = updated(floats(400, 400), np.array([6, 6]), known, 100.0, whole[:2])["6"]
    assert moved.value == pytest.approx(math.log(200) + 2 / 12 * math.log(2))
    assert moved.weight == 12.0


def test_one_user_decides_no_median_by_a_flood_of_short_answers() -> None:
    """The usual answer was the bot's then, and everybody's slow beyond what the spec's bound tells apart."""
    people = [f"u{n}" for n in range(10)]
    measured = pa.table({"user": [*people, *["bot"] * 30], "key_id": ["k"] * 10 + [None] * 30})
    weigh = memory.weigh_by(measured, {"k"})
    # 2 of 11 contributors: 10 people and 20 / 9 of the bot's 30 episodes
    assert weigh(np.arange(40)) == pytest.approx([1.0] * 10 + [2 / 27] * 30)
    ms = floats(*[200.0] * 5, *[800.0] * 5, *[20.0] * 30)
    sizes, whole = np.full(40, 6), np.zeros(40, bool)
    ratio = log_ratio(ms, sizes, {}, whole, weigh)
    assert ratio[[0, 5, 10]] == pytest.approx([0, math.log(4), -math.log(10)])
    after = updated(ms, sizes, {}, 100.0, whole, weigh)
    assert after == {"6": Median(pytest.approx(math.log(200.0)), pytest.approx(110 / 9))}


def test_an_answer_that_was_cut_took_at_least_as_long() -> None:
    """Stopped in its first second, the answer that went wrong was the fastest."""
    known = {"6": Median(math.log(200.0), 10.0)}
    ms, sizes = floats(100, 200, 400, 400, 100), np.array([6, 6, 6, 3, 3])
    cut = np.array([True, True, True, False, True])
    ratio = log_ratio(ms, sizes, known, cut)
    assert ratio[2:4] == pytest.approx([math.log(2), 0])
    assert np.isnan(ratio[[0, 1, 4]]).all()
    new = {"3": Median(pytest.approx(math.log(400.0)), 1.0)}
    assert updated(ms, sizes, known, 100.0, cut) == known | new
    assert np.isnan(log_ratio(ms[:1], sizes[3:4], {}, cut[:1])).all()  # nothing to hold it against


def test_medians_of_another_state_are_taken_of_sizes_that_the_line_has_not_met() -> None:
    mine = LineState(latency={"latency": {"5": {"value": 1.0, "weight": 3.0}}})
    other = LineState(
        latency={"latency": {"5": {"value": 9.0, "weight": 9.0}, "6": {"value": 2.0, "weight": 1.0}}}
    )
    found = memory.medians(memory.with_medians_of(mine, other))
    assert found == {"latency": {"5": Median(1.0, 3.0), "6": Median(2.0, 1.0)}, "latency_first_token": {}}


def test_tool_outputs_are_what_a_prompt_has_grown_by_within_an_episode() -> None:
    prompt, output = np.array([10.0, 25, 400, 405]), np.array([5.0, 4, 7, 2])
    # 25 - 10 - 5; the next episode begins with a prompt of its own; a shorter one has read nothing new
    assert _read(np.array([-1, 0, -1, 2]), prompt, output).tolist() == [0, 10, 0, 0]


def test_a_generation_has_read_what_came_since_the_one_that_it_goes_on_from() -> None:
    """Of two agents side by side in an episode each paid for all of the other's prompt, at every turn."""

    def call(name: str, prompt: int, base: str = "", prefix: int = 0) -> dict[str, object]:
        sizes = {"prompt_tokens": prompt, "output_tokens": 5}
        return {"id": name, "prompt_base": base, "prompt_prefix": prefix, **sizes}

    main = [call("a", 900), call("b", 950, "a", 905), call("c", 990, "b", 955)]
    helper = [call("x", 30), call("y", 42, "x", 35)]
    rows = [main[0], helper[0], main[1], helper[1], main[2]]
    before = _before([Episode({"id": "e"}, rows), Episode({"id": "f"}, [call("z", 7), call("again", 9)])])
    assert before.tolist() == [-1, 0, 0, 1, 2, -1, 5]
    untold = [call("a", 9), {**call("b", 0), "output_tokens": 0}, call("c", 9)]
    assert _before([Episode({"id": "e"}, untold)]).tolist() == [-1, 0, 0]
    of = [*rows, *(call("z", 7), call("again", 9))]
    prompt, output = (
        np.array([row[name] for row in of], float) for name in ("prompt_tokens", "output_tokens")
    )
    # 950 - 905 and 990 - 955; 42 - 35; what goes on from none is held against the one before it
    assert _read(before, prompt, output).tolist() == [0, 0, 45, 7, 35, 0, 0]


def test_invalid_calls_are_summed_per_episode() -> None:
    assert invalid_tool_calls(np.array([0, 0, 2]), np.array([1, 2, 5]), 4).tolist() == [3, 0, 5, 0]
    told = invalid_tool_calls(np.array([0, 0, 1, 1]), np.array([1, NAN, 0, NAN]), 2)
    assert told[0] == 1  # whatever else is not known
    assert np.isnan(told[1])


@pytest.mark.parametrize(
    ("answer", "asked"),
    [
        ("Which constant do you mean?", True),
        ("I can do that. Should I round before or after the tax?", True),
        ("Please tell me which file you mean.", True),
        ("Done. The function now multiplies.", False),
        ("", False),
        ('<tool_call>{"name": "edit_file", "arguments": {"new": "x?"}}</tool_call>', False),
        (
            "I changed `a ? b : c` to an if.\n\nAll tests pass and nothing else was touched by this change. "
            * 2,
            False,
        ),
        ("Let me know if you need anything else.", False),
        ("The service reads it when it starts. " * 300 + "Which file do you mean?", True),
        ("Which file? Found it. " + "The service reads it when it starts. " * 300, False),
        ("你想改哪个常量？", True),
        ("你想改哪个常量？A还是B。", True),
        ("Should it be A or B？", True),
        ("أي ثابت تقصد؟", True),
        ("Quelle constante veux-tu changer ?", True),
        ("Quelle constante\u202f? Dis-le moi.", True),
        ("Comment puis-je vous aider aujourd'hui ? Avez-vous des questions sur le code", True),
        ("C'est A ou B\u2009? Dis-le moi.", True),
        ("Ո՞րն է, A, թե B։", True),
        ("የትኛው ነው፧", True),
        ("どれですか?」", True),
        ("Is it A or B?..", True),
        ("Is it A or B?…", True),
        ("Is it A, or B?!", True),
        ("Is it A, B, ...?", True),
        ("Is it **A or B**?", True),
        ("Should the rate be 5%?\u200b", True),
        ("Is it A or B?🙂", True),
        ("### Is it A or B?", True),
        ("> Is it A or B?", True),
        ("    Is it A or B?", True),
        ("I made `a ?? b` of it, so that a ? b : c is gone.", False),
        ('It says "Which colour is it?".', False),
        ("It is flag ? First : Second now.", False),
        ("It asks for name LIKE ? AND age > 3 now.", False),
        ("The route /users/{id?} needs no number.", False),
        ("Only three columns go in now: VALUES (?)", False),
        ("I made the name optional:\n\n    name?: string;", False),
        ("It is read from https://a.example/x?y=1 now.", False),
        ("It is:\n\n```sql\nSELECT a FROM t WHERE name LIKE ?\n```", False),
        ("It is:\n\n1. So\n   ```python\n   # kept, see below\n   f(a ? b : c, 'sure?')\n   ```\n", False),
        ("It is:\n\n```ts\nconst y = ok(x) ?\n  1 : 2\n```\nThat is all.", False),
        ("It is:\n\n```ts\n" + "f(x ?? y);\n" * 1000 + "// why?\n```", False),
        ("```\nIs it A or B?\n```", True),
        ("Tell me:\n\n```text\nIs it A or B?\n```\n", True),
        ("> ``` Markdown\n> Is it A or B?\n> ```", True),
        ("```\n```\nIs it A or B?\n```", True),
        ("```ts\n" + "f();\n" * 2000 + "```\nIs it A or B?", True),
        ("The end of a ``` block is here.\nIs it A or B?", True),
        # hidden, where a reader sees it all the same
        ("It is:\n\n```python\n# Which value should it be?\nf()\n```\n", True),
        ("```js\nf();  // which value should it be?\n```", True),
        ("```html\n<!-- Please tell me which value it should be. -->\n```", True),
        ("```python\nWhich value should it be?\n```", True),
        ("```question\nwhich value should it be?\n```", True),
        ("```Which value should it be?\n```", True),
        ("```py\nどれですか?\n```", True),
        ("`Which value should it be?`", True),
        ("RATE = 3 or 5?", True),
        ("Which value, 3 or 5? {", True),
        ("Which value should it be?" + "\n" * 9000, True),
        ("Which value should it be?" + " \u200b" * 9000, True),
        ("Which value should it be?\n" + "-" * 4000, True),
        ("Which value should it be?\n" + "- " * 4000, True),
        ("Which value should it be?\n---", True),
        ("Which value, 3 or 5?- I wait.", True),
        ("Which value should it be? " + "The service reads it when it starts. " * 40, True),
        # without its mark, which is a letter less
        ("Which value should it be", True),
        ("Which value should it be.", True),
        ("I read it all. What rate do you want me to take.", True),
        ("Should I round before or after the tax.", True),
        ("Do you want A or B.", True),
        ("Would you prefer A or B", True),
        ("How should I round it.", True),
        ("It can be two files. Where do you want me to put it.", True),
        ("Tell me which file you mean.", True),
        ("It can be two files. Let me know which one.", True),
        ("How it should round is in the docs. Where we do want it is the end.", False),
        ("Let me know how it goes.", False),
        ("Let me know whether it helps.", False),
        ("The logs tell me which file it was.", False),
        ("Which is why I left it. What you should do next: run it. What it does is simple.", False),
        ("It says which rate it should take, and what the file does.", False),
        ("Confirm which rows are affected, then run it.", False),
        ("Should it fail, run it again. Should you want more, add it.", False),
        # not hidden: a reader sees no question
        ("```ruby\nreturn unless user.nil? or signed_in?\nreturn true if empty?\n```", False),
        ("It is `return true if x.empty?` now, and `a ? b : c` is gone.", False),
        ("```sh\nsudo rm -r build  # all of it\n```\nThat is all.", False),
        ("found = users.empty?\nThat is all.", False),
        ("Of <think> then. Which value should it be? It is read once.", True),  # said, whatever tag is before
        ("I stopped. <tool_call> Which value should it be?", True),  # no call is on record: people read it
        ("```js\n/**\n * Which value should it be?\n */\nf();\n```", True),
        # strings, flags and signatures of code that is shown
        (
            'It has:\n\n```json\n{\n  "confirm": "Are you sure you want it?",\n  "ok": 1\n}\n```',
            False,
        ),
        ('It is:\n\n```json\n  "email.required": "Please provide a valid email",\n```\nThat is all.', False),
        ('It is:\n\n```python\nanswer = input(\n    "Delete all files?"\n)\n```\nThat is all.', False),
        ('It says:\n\n```python\nraise SystemExit(\n    "please specify a file"\n)\n```', False),
        ('Run:\n\n```sh\ncurl localhost:80 \\\n  --data "what is the time?"\n```\nThat is all.', False),
        ("It is:\n\n```js\nask({\n  message:\n    'Overwrite the file?',\n});\n```", False),
        ("Set it:\n\n```sh\n# please provide your own key\nAPI_KEY=\n```\nThat is all.", False),
        ("The signature is fun load(id: Int?, name: String) now.", False),
        ("The signature is load(id: Int?; name: String?): User now.", False),
        ("It is a union of int?|str now, and of Int?-like names.", False),
        ("return nil unless empty?", False),
        ("found = nil unless empty?\nThat is all.", False),
    ],
)
def test_asks(answer: str, asked: bool) -> None:
    assert asks([answer]) == [asked]


@pytest.mark.parametrize(
    "call",
    [
        '<tool_call>{"name": "bash", "arguments": {"a": "</tool_call> now?"}}</tool_call>',
        '[TOOL_CALLS]bash[ARGS]{"a": "] now?"}',
        '[TOOL_CALLS] [{"name": "bash", "arguments": {"a": "] now?"}}]',
        '<|tool_call|>[{"name": "bash", "arguments": {"a": "] now?"}}]<|/tool_call|>',
        "<tool_call>{broken now?</tool_call>",
    ],
)
def test_what_is_said_behind_a_call_is_said(call: str) -> None:
    """A question there was free where the call's own end was not looked for."""
    assert without_calls(f"I look.{call} Which value should it be?{call}").split() == [
        *("I", "look.", "Which", "value", "should", "it", "be?")
    ]


def test_what_the_seed_model_learnt_to_say_asks_where_it_has_a_question_mark() -> None:
    """The recorded experiments rest on it."""
    shown = demonstrations
    said = (*shown.QUESTIONS, *shown.SHORT, *shown.LONG, *shown.OPENINGS, *shown.DECLINES, *shown.FAILED)
    assert asks(said) == ["?" in text for text in said]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("ask_followup_question", True),
        ("AskUserQuestion", True),
        ("question", True),
        ("request_user_input", True),
        ("Task", False),
        ("edit_file", False),
        ("flask_run", False),
        ("", False),
    ],
)
def test_asks_by_a_tool(name: str, asked: bool) -> None:
    assert asks_by_tool([{"name": "read_file"}, {"name": name}]) == asked


def test_edited() -> None:
    edit = event("edit_applied", path="a", before="x = 1", after="x = 2")
    nothing = event("edit_applied", path="a", before="x = 1", after="x = 1\n")
    assert edited(edits_of([edit], 0, HOUR))
    assert not edited(edits_of([nothing], 0, HOUR))
    assert not edited(edits_of([], 0, HOUR))


BAND = Stabiliser(low=0.5, high=0.8, step=2.0, initial=0.1, minimum=0.0, maximum=1.0)


@pytest.mark.parametrize(
    ("price", "rate", "after"),
    [(0.1, 0.6, 0.1), (0.1, 0.4, 0.3), (0.9, 0.1, 1.0), (0.5, 0.9, 0.3), (0.1, 1.0, 0.0), (0.1, 0.5, 0.1)],
)
def test_the_price_of_asking(price: float, rate: float, after: float) -> None:
    assert stabiliser.moved({"price": price}, rate, 900, BAND).price == pytest.approx(after)


def test_the_price_starts_at_initial_and_stays_within_todays_bounds() -> None:
    assert stabiliser.price_of({}, BAND) == 0.1
    assert stabiliser.price_of({"price": 7.0}, BAND) == 1.0


def test_inside_the_band_the_price_eases_off() -> None:
    eased = BAND.model_copy(update={"ease": 0.25})
    assert stabiliser.moved({"price": 0.4}, 0.6, 900, eased).price == pytest.approx(0.3)
    assert stabiliser.moved({"price": 0.4}, 0.4, 900, eased).price == pytest.approx(0.6)


def test_a_band_of_history_is_the_first_windows_mean() -> None:
    """0.4, 0.6 and 0.5 +- 0.1: (0.4, 0.6). Until then the price stays; then 0.3 is 0.1 too low, times 2."""
    spec = Stabiliser(band="history", width=0.1, windows=3, step=2.0, initial=0.2, minimum=0.0, maximum=1.0)
    state: dict[str, object] = {}
    for rate, band in ((0.4, None), (0.6, None), (0.5, (0.4, 0.6)), (0.3, (0.4, 0.6))):
        dual = stabiliser.moved(state, rate, 900, spec)
        assert dual.band == (None if band is None else pytest.approx(band))
        state = dual.to_state()
    gathered = {"rates": [0.4, 0.6, 0.5], "episodes": [900, 900, 900], "capped": True}
    assert state == {"price": pytest.approx(0.4), **gathered}


def test_a_band_of_history_weighs_by_episodes_and_waits_for_enough_of_them() -> None:
    """Width 0.5 wants (6 * 0.5 / 0.5)^2 = 36 episodes: 8, 8 and 20. Their edits: 8 + 0 + 10 of 36."""
    spec = Stabiliser(band="history", width=0.5, windows=2, step=1.0, initial=0.2, minimum=0.0, maximum=1.0)
    state: dict[str, object] = {}
    for rate, episodes, known in ((1.0, 8, False), (0.0, 8, False), (0.5, 20, True), (0.9, 99, True)):
        dual = stabiliser.moved(state, rate, episodes, spec)
        assert dual.band == (pytest.approx((0.0, 1.0)) if known else None)
        assert dual.price == 0.2
        state = dual.to_state()
    assert state == {"price": 0.2, "rates": [1.0, 0.0, 0.5], "episodes": [8, 8, 20], "capped": True}
    large = stabiliser.moved({"rates": [1.0, 0.0], "episodes": [900, 100]}, 0.0, 8, spec)
    assert large.band == pytest.approx((0.4, 1.0))


def test_a_band_from_before_episodes_were_counted_stays() -> None:
    spec = Stabiliser(band="history", width=0.1, windows=3, step=2.0, initial=0.2, minimum=0.0, maximum=1.0)
    assert stabiliser.moved({"rates": [0.4, 0.6, 0.5]}, 0.9, 8, spec).band == pytest.approx((0.4, 0.6))
    last = stabiliser.moved({"rates": [0.4, 0.6]}, 0.5, 900, spec)  # the third of three
    assert last.band == pytest.approx((0.4, 0.6))
    assert last.to_state() == {"price": 0.2, "rates": [0.4, 0.6, 0.5], "episodes": [900], "capped": True}


@pytest.mark.parametrize("sizes", [(8,), (40,), (8, 1000), (1000,)])
def test_the_band_of_a_small_line_is_no_chance(sizes: tuple[int, ...]) -> None:
    """Edits in 60 % for ever, the default width: the low edge was 0.27 to 0.60 of windows of 8, not 0.45."""
    spec, _ = load("default", Path())
    assert spec.stabiliser is not None
    lows = []
    for seed in range(200):
        random, state, dual, at = np.random.default_rng(seed), {}, None, 0
        while dual is None or dual.band is None:
            n = sizes[min(at, len(sizes) - 1)]
            dual = stabiliser.moved(state, random.binomial(n, 0.6) / n, n, spec.stabiliser)
            state, at = dual.to_state(), at + 1
        lows.append(dual.band[0])
    assert abs(np.mean(lows) - 0.45) < 0.01
    assert np.quantile(np.abs(np.array(lows) - 0.45), 0.95) < 0.15 / 2


def window(rows: list[tuple[str, str, float]]) -> pa.Table:
    """Episodes as (user, key, edited)."""
    return pa.table(dict(zip(("user", "key_id", "edited"), map(list, zip(*rows, strict=True)), strict=True)))


def test_one_heavy_user_does_not_move_everybodys_price() -> None:
    """40 people edit in 6 of 10 episodes, a bot with 900 in none: it moved the rate to 0.185.

    It has a tenth of the rate now: the others' 400 are 9 tenths, so it counts as 44.4, and 0.6 * 0.9 is left.
    """
    people = [(f"p{n}", "team", float(at < 6)) for n in range(40) for at in range(10)]
    bot = [("bot", "team", 0.0)] * 900
    rate, episodes, caps = stabiliser.edit_rate(window([*people, *bot]), ["team"])
    assert rate == pytest.approx(0.6 * 0.9)
    assert (episodes, caps) == (444, stabiliser.Caps(users=1))
    spec, _ = load("default", Path())
    assert spec.stabiliser is not None
    state = {"price": 0.2, "rates": [0.6] * 3, "episodes": [400] * 3}
    assert stabiliser.moved(state, rate, episodes, spec.stabiliser).price < 0.2  # in its band
    assert stabiliser.moved(state, 0.185, 1300, spec.stabiliser).price == pytest.approx(0.2 + 0.45 - 0.185)


def test_one_key_with_the_names_of_many_does_not_either() -> None:
    """Whoever holds a key names its users: 3,600 names through one key of nine have a quarter. A key that is
    marked as shared is its users."""
    people = [(f"p{n}", f"k{n}", float(at < 60)) for n in range(8) for at in range(100)]
    names = [(f"bot{n}", "mine", 0.0) for n in range(3600)]
    assert stabiliser.edit_rate(window([*people, *names]), [])[0] == pytest.approx(0.6 * 0.75)
    assert stabiliser.edit_rate(window([*people, *names]), ["mine"])[0] == pytest.approx(0.6 * 800 / 4400)


def test_caps_that_cannot_both_hold_give_way() -> None:
    """One of five keys may have 2 fifths, the others' four users a tenth each: 4 fifths in all."""
    people = [(f"p{n}", f"k{n}", 1.0) for n in range(4) for _ in range(100)]
    bots = ((f"b{n}", "b", 0.0) for n in range(3600))
    rate, episodes, caps = stabiliser.edit_rate(window([*people, *bots]), [])
    assert 4 / 10 < rate < 6 / 10
    assert episodes > 400
    assert caps.relaxed > 0.01


@pytest.mark.parametrize("seed", range(4))
def test_where_no_cap_binds_the_rate_is_the_mean_to_the_bit(seed: int) -> None:
    """The simulated population's days, as the experiments and the demo have them; one user; two; a team."""
    random = np.random.default_rng(seed)
    days = [[case.person.id for of in day_of("train", seed, 200, n) for case in of] for n in (450, 1200)]
    for users in (*days, ["one"] * 50, ["one"] * 49 + ["two"], [f"u{n % 12}" for n in range(240)]):
        edited = random.integers(0, 2, len(users)).astype(float)
        told = window([(user, "default", edit) for user, edit in zip(users, edited, strict=True)])
        for shared in ((), ("default",)):
            found = stabiliser.edit_rate(told, shared)
            assert found == (float(edited.mean()), len(users), stabiliser.Caps())


def test_what_the_caps_did_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only the three columns that they need are copied of a window's 46."""
    told = window([("bot", "k", 0.0)] * 900 + [(f"p{n}", "k", 1.0) for n in range(60) for _ in range(10)])
    told = told.append_column("why_not", pa.array([""] * told.num_rows))
    spec, _ = load("default", Path())
    seen, whole = [], stabiliser.edit_rate
    monkeypatch.setattr(stabiliser, "edit_rate", lambda *of: [seen.append(of[0].column_names), whole(*of)][1])
    dual = memory.dual(told, LineState(), spec, ["k"])
    assert seen == [["user", "key_id", "edited"]]
    assert dual is not None
    facts = dual.told()
    known = stabiliser.moved({"price": 0.1}, 0.6, 900, BAND).told()
    assert (known["low"], known["high"]) == (BAND.low, BAND.high)
    assert (facts["low"], facts["high"]) == (None, None), "while it is gathered"
    assert (facts["capped_users"], facts["capped_keys"], facts["relaxed"]) == (1, 0, 0.0)
    assert dual.in_words()["edit_rate_caps"] == "1 user and 0 API keys held back"


def test_a_band_gathered_uncapped_is_gathered_anew_where_the_caps_bind() -> None:
    """A bot held the history at 0.185; 0.54 without it ended the price in one window, for ever."""
    spec, _ = load("default", Path())
    assert spec.stabiliser is not None
    old = {"price": 0.2, "rates": [0.185] * 3, "episodes": [1300] * 3}
    binds = stabiliser.Caps(users=1)
    dual = stabiliser.moved(old, 0.54, 444, spec.stabiliser, binds)
    assert (dual.price, dual.band, dual.rates) == (0.2, None, (0.54,))
    for _ in range(2):
        dual = stabiliser.moved(dual.to_state(), 0.54, 444, spec.stabiliser, binds)
    assert dual.band == pytest.approx((0.39, 0.69))
    untouched = stabiliser.moved(old, 0.2, 444, spec.stabiliser)
    assert untouched.band == pytest.approx((0.035, 0.335))  # nobody was capped: it is the same measure
    later = stabiliser.moved(untouched.to_state(), 0.2, 444, spec.stabiliser, binds)
    assert later.rates == (0.185,) * 3


def test_the_incentive_reverses() -> None:
    """A line that never edits comes to pay the most for asking, one that always does the least."""
    price = 0.1
    for _ in range(20):
        price = stabiliser.moved({"price": price}, 0.0, 900, BAND).price
    assert price == 1.0
    for _ in range(20):
        price = stabiliser.moved({"price": price}, 1.0, 900, BAND).price
    assert price == 0.0


def test_strata_use_only_the_request() -> None:
    assert language("look at src/app.ts and x.py") == "typescript"
    assert language("```go\nfunc f() {}\n```") == "go"
    fences = {"csharp": "csharp", "c#": "csharp", "c++": "cpp", "ruby": "ruby", " kotlin": "kotlin"}
    assert {name: language(f"```{name}\nx") for name in fences} == fences  # they were of none
    assert language("rename x. then stop") == ""
    request = "rename x in shop.py"
    assert (
        stratum(request, "rename", "abcdef0123456789", ("kind", "language", "tools"))
        == "rename/python/abcdef01"
    )
    assert stratum(request, "rename", "", ()) == "all"


def test_a_term_by_hand() -> None:
    strata = np.array([0, 0, 1, 1])
    values = floats(1.0, 0.25, 9.0, NAN)
    plain = SignalSpec(weight=2.0, offset=0.5, high=4.0, unknown=-0.1)
    assert term(values, strata, plain).tolist() == [1.0, -0.5, 7.0, -0.1]
    mean = SignalSpec(weight=1.0, unknown="mean")
    assert term(values, strata, mean).tolist() == [1.0, 0.25, 9.0, 9.0]  # its stratum's
    assert term(values, np.array([0, 0, 0, 1]), mean)[3] == pytest.approx(10.25 / 3)  # the window's
    assert term(floats(NAN), np.array([0]), mean).tolist() == [0.0]
    assert np.isnan(term(values, strata, SignalSpec(weight=1.0, unknown="exclude"))[3])


def test_one_user_decides_no_mean_term_by_a_flood_of_known_ones() -> None:
    """With all of its edits thrown away, a bot had everybody whose edit nobody knows stand below the mean."""
    people, bot = [f"u{n}" for n in range(12)], ["bot"] * 30
    measured = pa.table({"user": people + bot, "key_id": ["k"] * 42})
    values = floats(*[1.0] * 10, NAN, NAN, *[-1.0] * 30)
    mean = SignalSpec(weight=1.0, unknown="mean")
    found = term(values, np.array([*[0] * 11, 1, *[0] * 30]), mean, memory.weigh_by(measured, {"k"}))
    # of 11 who are known the bot has 2 / 11: 20 / 9 of its episodes beside 10 of the others
    assert found[10] == pytest.approx((10 - 20 / 9) / (10 + 20 / 9))
    assert found[11] == pytest.approx(found[10])  # the window's


SPEC = """
schema = "rtrl-reward/1"
name = "test"
clip = [-1.0, 1.0]
[signals.edit_persistence]
weight = 1.0
unknown = "exclude"
[signals.invalid_tool_calls]
weight = -0.5
unknown = 0.0
[accepted_exits]
"unknown:edit_persistence" = "a test"
"""


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ((1e308, 0.0), "the term of latency is not finite in 1 episodes"),  # clip would make it a bound
        ((1e31, 0.0), "the term of latency is beyond 1e[+]30 in 1 episodes"),  # its mean has no error
        ((6e29, 6e29), "the reward is beyond 1e[+]30 in 1 episodes"),
    ],
)
def test_weights_that_no_float_can_hold_are_refused(weights: tuple[float, float], says: str) -> None:
    text = 'schema = "rtrl-reward/1"\nname = "x"\nclip = [-1.0, 1.0]\n'
    for name, weight in zip(("latency", "length_cost"), weights, strict=True):
        text += f"[signals.{name}]\nweight = {weight}\nunknown = 0.0\n"
    values = {"latency": floats(1.5 if weights[1] else 3.0, NAN), "length_cost": floats(1.0, 0.0)}
    with pytest.raises(UsageError, match=says):
        combine(values, np.zeros(2, dtype=np.int64), parse(text, "test"), price=None)


def test_a_reward_by_hand() -> None:
    values = {
        "edit_persistence": floats(1.0, 0.5, NAN, 0.0),
        "invalid_tool_calls": floats(0, 1, 0, 3),
        "clarified": floats(0, 1, 1, 1),
    }
    got = combine(values, np.zeros(4, dtype=np.int64), parse(SPEC, "test"), price=0.25)
    assert got.terms["asking_price"].tolist() == [0, -0.25, -0.25, -0.25]
    assert got.reward[[0, 1, 3]].tolist() == [1.0, -0.25, -1.0]  # -1.75 is clipped
    assert got.unpriced[[0, 1, 3]].tolist() == [1.0, 0.0, -1.0]  # -1.5 is clipped, too
    assert np.isnan(got.reward[2])
    assert got.excluded_by == ["", "", "edit_persistence", ""]
    values["invalid_tool_calls"][2] = NAN
    spec = parse(SPEC.replace("unknown = 0.0", 'unknown = "exclude"'), "test")
    both = combine(values, np.zeros(4, dtype=np.int64), spec, price=None)
    assert both.excluded_by[2] == "edit_persistence"  # the first that does


def test_what_a_filter_drops_by_hand() -> None:
    """Beyond its bounds, not at them; what is not known is not dropped; the first that holds is named."""
    text = SPEC + (
        '"drop:edit_persistence" = "a test"\n"drop:invalid_tool_calls" = "a test"\n'
        "[drop.edit_persistence]\nbelow = 0.25\nabove = 0.75\n[drop.invalid_tool_calls]\nabove = 1.0\n"
    )
    values = {
        "edit_persistence": floats(0.25, 0.2, 0.75, 0.8, NAN, 0.1, 0.5),
        "invalid_tool_calls": floats(0, 0, 1, 0, 1, 2, 2),
    }
    first, second = "drop:edit_persistence", "drop:invalid_tool_calls"
    assert dropped(values, parse(text, "test")) == ["", first, "", first, "", first, second]


def shipped_rewards(tmp_path: Path, followup: float, refused_followup: float, price: str) -> list[float]:
    """Of an edit kept, thrown away, refused, a question and a broken call, under the shipped spec.

    The price is the stabiliser's bound of that name. All of one length, which costs something.
    """
    spec, _ = load("default", tmp_path)
    values = {name: floats(0, 0, 0, 0, 0) for name in spec.signals}
    values["edit_persistence"] = floats(1, 0, 0, NAN, NAN)
    values["edit_rejected"] = floats(0, 0, 1, 0, 0)
    values["dissatisfied_followup"] = floats(followup, followup, refused_followup, followup, followup)
    values["invalid_tool_calls"] = floats(0, 0, 0, 0, 1)
    values["clarified"] = floats(0, 0, 0, 1, 0)
    values["length_cost"] = np.full(5, 40.0)  # weight -0.001: -0.04
    found = combine(values, np.zeros(5, dtype=np.int64), spec, getattr(spec.stabiliser, price)).reward
    return [float(reward) + 0.04 for reward in found]


@pytest.mark.parametrize(
    ("price", "asked"), [("minimum", (0.0, -0.45)), ("initial", (-0.2, -0.65)), ("maximum", (-1.4, -1.85))]
)
def test_the_shipped_spec_puts_broken_calls_below_everything(
    tmp_path: Path, price: str, asked: tuple[float, float]
) -> None:
    """The columns of the spec's commentary: content (0.15, as silence) and unhappy (0.9, refused 0.95)."""
    content = shipped_rewards(tmp_path, 0.15, NAN, price)
    assert content == pytest.approx([1.4, -0.6, -0.7, asked[0], -2.0])
    unhappy = shipped_rewards(tmp_path, 0.9, EXPLICIT_NO, price)
    assert unhappy == pytest.approx([0.95, -1.05, -1.18, asked[1], -2.45])
    for rewards in (content, unhappy):
        assert min(rewards[:4]) > rewards[4] + 0.09


def test_when_an_edit_pays_under_the_shipped_spec(tmp_path: Path) -> None:
    """Between kept with a content user and refused with an unhappy one: how many must be kept."""
    kept, _, _, welcome, _ = shipped_rewards(tmp_path, 0.15, NAN, "initial")
    _, _, refused, annoying, _ = shipped_rewards(tmp_path, 0.9, EXPLICIT_NO, "initial")
    clear = (annoying - refused) / (kept - refused)
    assert clear == pytest.approx(0.53 / 2.58)
    assert clear == pytest.approx(1 / 5, abs=0.01)
    vague = (welcome - refused) / (kept - refused)
    assert vague == pytest.approx(0.98 / 2.58)
    assert vague == pytest.approx(2 / 5, abs=0.03)


def test_a_refusal_alone_is_worse_than_a_question_and_better_than_a_broken_call(tmp_path: Path) -> None:
    """An editor that sends `edit_applied` and `edit_rejected`, and a user who says nothing."""
    spec, _ = load("default", tmp_path)
    edit = event("edit_applied", 1, path="a.py", before="", after="total = 1 + 1\n")
    told = [edit, event("edit_rejected", 5, path="a.py")]
    persistence = [edit_persistence(e, HOUR, edits_of(e, 0, HOUR)) for e in (told, told[1:])]
    values = {name: floats(0, 0, 0, 0) for name in spec.signals}
    values["edit_persistence"] = np.array([1.0, np.nan, *persistence], dtype=np.float64)
    values["edit_rejected"] = floats(0, 0, 1, 1)
    values["dissatisfied_followup"] = floats(NAN, NAN, NAN, NAN)
    values["clarified"] = floats(0, 1, 0, 0)
    assert spec.stabiliser is not None
    rewards = combine(values, np.zeros(4, dtype=np.int64), spec, spec.stabiliser.initial).reward
    assert rewards.tolist() == pytest.approx([1.4, -0.2, -0.6 - 0.1, -0.6 - 0.1])
