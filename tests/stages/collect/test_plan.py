"""The decision, on any order of arrival: by hand in test_run.py, here what must always hold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.collect import columns
from stages.collect.columns import Columns
from stages.collect.counted import events_after_horizon, events_left_behind, left_again, left_behind
from stages.collect.plan import REASONS, Plan, Rules, audit, plan
from stages.collect.scan import Scan, scan
from stages.populations import Whose
from stages.records import GOES_ON, RETRIED, Event, Generation, Sampling, Span
from stages.spool import codec
from stages.spool.frames import Frame, Kind

HOUR = 3_600_000
RULES = Rules(
    arms=frozenset({"live"}),
    max_lag=1,
    horizon_ms=HOUR,
    lags={"a": 0, "b": 1, "c": 2, "x": None},
    consumed=frozenset({"e3"}),
)


def generation(gid: str, episode: str, at: int, **fields: Any) -> Generation:
    defaults: dict[str, Any] = {
        "id": gid, "key_id": "k", "user": "u", "session": "s", "episode": episode, "ordinal": 0, "at": at,
        "wall": at, "line": "auto", "arm": "live", "deployment": "", "api": "chat", "sampling": Sampling(),
        "spans": (Span(0, 2, "a"),), "finish_reason": "stop", "prompt_tokens": 4, "output_tokens": 2,
        "ttft_ms": 1.0, "duration_ms": 1.0,
    }  # fmt: skip
    return Generation(**(defaults | fields))


def event(eid: str, gid: str, kind: str, at: int, key: str = "k") -> Event:
    return Event(id=eid, key_id=key, generation_id=gid, type=kind, at=at, wall=at)  # type: ignore[arg-type]


def scanned(generations: Sequence[Generation], events: Sequence[Event]) -> Scan:
    """As if the records had been committed in this order, events after generations."""
    made = [frame(Kind.GENERATION, n, codec.pack_generation(g, b"")) for n, g in enumerate(generations, 1)]
    told = [
        frame(Kind.EVENT, n, codec.pack_event(e, "u", b""))
        for n, e in enumerate(events, len(generations) + 1)
    ]
    return scan(Columns(columns.generations_of(1, made), columns.events_of(1, told), []), Whose(("auto",)))


def frame(kind: Kind, seq: int, body: bytes) -> Frame:
    """As if it lay at the start of a segment."""
    return Frame(0, len(body), kind, seq, body)


def decide(found: Scan, now: int = 10 * HOUR) -> Plan:
    return plan(found, RULES, now, np.zeros(len(found.g_seq), dtype=np.bool_))


def reasons(found: Scan, decided: Plan) -> dict[str, str]:
    names = (*REASONS, "taken")
    return {episode: names[code] for episode, code in zip(found.episodes, decided.left, strict=True)}


def test_every_reason_by_hand() -> None:
    made = [
        generation("1", "ok", 0),
        generation("2", "e3", 0),
        generation("3", "old", 0, spans=(Span(0, 1, "a"), Span(1, 2, "c"))),
        generation("4", "parent", 0, spans=(Span(0, 2, "b"),)),
        generation("5", "stranger", 0, spans=(Span(0, 2, "x"),)),
        generation("6", "unheard_of", 0, spans=(Span(0, 2, "?"),)),
        generation("7", "young", 9 * HOUR + 1),
        generation("13", "just ripe", 9 * HOUR),
        generation("8", "private", 0),
        generation("9", "private", 1, no_train=True, ordinal=1),
        generation("10", "other_arm", 0, arm="canary"),
        generation("11", "no_answer", 0, spans=(), output_tokens=0),
        generation("12", "edited_late", 0),
    ]
    found = scanned(made, [event("x", "12", "edit_applied", 9 * HOUR + 1)])
    decided = decide(found)
    assert reasons(found, decided) == {
        "ok": "taken", "e3": "consumed", "old": "lag", "parent": "taken", "stranger": "unrelated",
        "unheard_of": "unrelated", "young": "immature", "private": "no_train", "other_arm": "arm",
        "no_answer": "taken", "edited_late": "immature", "just ripe": "taken",
    }  # fmt: skip
    assert [found.episodes[code] for code in decided.taken] == ["ok", "parent", "just ripe", "no_answer"]
    lags = dict(zip(found.episodes, decided.lag.tolist(), strict=True))
    assert [lags[name] for name in ("ok", "old", "parent", "stranger", "no_answer")] == [0, 2, 1, -1, 0]


@pytest.mark.parametrize(
    ("most", "left"),
    [(0, set()), (4, set()), (3, {"first"}), (2, {"first", "edited"}), (1, {"first", "edited", "twin"})],
)
def test_of_more_than_the_limit_the_newest_are_taken(most: int, left: set[str]) -> None:
    """By their last activity, of one instant by their beginning; what is left waits, and is read again."""
    made = [
        generation("1", "first", 0),
        generation("2", "edited", 0),
        generation("3", "twin", HOUR),
        generation("4", "newest", HOUR),
        generation("5", "young", 10 * HOUR),
        generation("6", "private", HOUR + 1, no_train=True),  # is none of the newest
    ]
    found = scanned(made, [event("x", "2", "edit_applied", HOUR - 1)])
    decided = plan(found, replace(RULES, most=most), 10 * HOUR, np.zeros(6, dtype=np.bool_))
    told = reasons(found, decided)
    assert {episode for episode, reason in told.items() if reason == "limit"} == left
    assert [found.episodes[code] for code in decided.taken] == [e for e in told if told[e] == "taken"]
    assert (told["young"], told["private"]) == ("immature", "no_train")
    assert decided.take_generation.sum() == 4 - len(left)
    assert decided.resume_seq == 1


def test_only_the_key_that_made_a_generation_may_speak_of_it() -> None:
    found = scanned([generation("1", "e", 0)], [event("x", "1", "edit_applied", 9 * HOUR + 1, key="other")])
    decided = decide(found)
    assert reasons(found, decided) == {"e": "taken"}
    assert decided.take_event.tolist() == [False]


def test_an_old_canary_does_not_hold_the_window_back() -> None:
    made = [
        generation("1", "old canary", 0, arm="canary", spans=(Span(0, 2, "c"),)),
        generation("2", "e3", 0),
        generation("3", "canary", 0, arm="canary", spans=(Span(0, 2, "b"),)),  # near enough
        generation("4", "ok", 0),
    ]
    found = scanned(made, [])
    decided = decide(found)
    assert reasons(found, decided) == {"old canary": "arm", "e3": "consumed", "canary": "arm", "ok": "taken"}
    assert decided.resume_seq == 3


def test_what_is_not_mature_yet_is_read_again() -> None:
    found = scanned([generation("1", "e3", 0), generation("2", "young", 10 * HOUR)], [])
    decided = decide(found)
    assert reasons(found, decided) == {"e3": "consumed", "young": "immature"}
    assert decided.resume_seq == 2


def test_the_next_request_is_a_message_only_where_it_may_be_read_and_no_client_told_one() -> None:
    def follow_up(*, told: bool = False, lost: bool = False, of: Any = (), **fields: Any) -> int:
        made = [generation("1", "first", 0, **dict(of)), generation("2", "next", 1, **fields)]
        found = scanned(made, [event("x", "1", "user_message", 1)] if told else [])
        decided = plan(found, RULES, 10 * HOUR, np.array([False, lost]))
        return int(decided.follow_up[found.episodes.index("first")])

    assert (follow_up(), follow_up(told=True), follow_up(lost=True)) == (1, -1, -1)
    again = {RETRIED: "1"}
    assert follow_up(features=again) == -1, "the same prompt: its client sent it again by itself"
    unknown = {"prompt_tokens": 0, "finish_reason": "abort"}
    assert follow_up(features=again, of=unknown) == -1, "its answer was cut before it began"
    engine_lost = {"finish_reason": "error", "prompt_tokens": 4}
    assert (follow_up(of=engine_lost), follow_up(of=engine_lost, prompt_tokens=9)) == (-1, 1)
    assert follow_up(features=again, prompt_tokens=9) == 1, "a new message, which had been refused at first"


@pytest.mark.parametrize(
    ("duration", "finish", "at", "follows"),
    [
        (500.9, "stop", 501, True),  # times of requests are told in whole ms
        (502.1, "stop", 501, False),
        (502.1, "abort", 501, True),  # stopped, and asked anew at once
    ],
)
def test_what_is_asked_before_an_answer_is_there_is_no_message_to_it(
    duration: float, finish: str, at: int, follows: bool
) -> None:
    """Who wants several answers to one request sends it several times at once."""
    made = [
        generation("1", "first", 0, duration_ms=duration, finish_reason=finish),
        generation("2", "second", at),
        generation("3", "third", 9000),
    ]
    found = scanned(made, [])
    told = dict(zip(found.episodes, decide(found).follow_up.tolist(), strict=True))
    assert told == {"first": 1 if follows else -1, "second": 2, "third": -1}


@pytest.mark.parametrize("back", [0, 9, 60_000, 6 * HOUR])
def test_of_two_requests_no_clock_that_was_set_back_says_which_came_first(back: int) -> None:
    """The complaint, an hour before what it complained of by the clock, was no message to it, and what had
    been asked before was the message to its own answer."""
    at = 8 * HOUR
    made = [
        generation("1", "first", at),
        generation("2", "elsewhere", at - 20_000, session="another", duration_ms=19_000),
        generation("3", "complaint", at + 30_000 - back, duration_ms=5000),
        generation("4", "last", at + 90_000 - back),
        generation("5", "after", at + 91_000 - back, session="another"),
    ]
    found = scanned(made, [])
    told = dict(zip(found.episodes, decide(found).follow_up.tolist(), strict=True))
    assert told == {"first": 2, "elsewhere": 4, "complaint": 3, "last": -1, "after": -1}


def test_who_goes_back_to_an_earlier_answer_says_nothing_of_the_one_after_it() -> None:
    """A complaint of the first answer was held against the one that had been asked for in its place."""
    another = "s/1-0123456789ab"
    made = [
        generation("1", "s/1", 0),
        generation("2", "beside", 1),
        generation("3", another, 1),
        generation("4", "s/2", 2, features={GOES_ON: "s/1"}),
        generation("5", "s/2-0123456789ab", 3, features={GOES_ON: "s/1"}),
        generation("6", "s/3", 4, features={GOES_ON: "not in the window"}),
        generation("7", "s/2-123456789abc", 5, features={GOES_ON: another}),
    ]
    found = scanned(made, [])
    told = dict(zip(found.episodes, decide(found).follow_up.tolist(), strict=True))
    assert told == {
        "s/1": 3, "beside": 2, another: 6, "s/2": 4, "s/2-0123456789ab": 5, "s/3": 6, "s/2-123456789abc": -1
    }  # fmt: skip


def test_a_plain_completion_is_nobodys_next_message_and_has_none() -> None:
    """An editor sends its chat and its completions under one session: they took the chat's complaint."""
    made = [
        generation("1", "chat", 0),
        generation("2", "typed", 1, api="completions"),
        generation("3", "again", 2),
        generation("4", "typed more", 3, api="completions"),
    ]
    found = scanned(made, [])
    told = dict(zip(found.episodes, decide(found).follow_up.tolist(), strict=True))
    assert told == {"chat": 2, "typed": -1, "again": -1, "typed more": -1}


def test_what_an_agent_asks_its_sub_agents_is_no_message_to_it() -> None:
    """Named episodes of one session: main works on while two sub-agents do. The prompt of the first was taken
    for main's next message, and what the person then wrote for the second's alone."""
    made = [
        generation("1", "main", 0),
        generation("2", "first", 1),
        generation("3", "second", 1),
        generation("4", "first", 2),
        generation("5", "main", 3),
        generation("6", "next", 9),
        generation("7", "elsewhere", 4, session="another"),
    ]
    found = scanned(made, [])
    told = dict(zip(found.episodes, decide(found).follow_up.tolist(), strict=True))
    assert told == {"main": 5, "first": 5, "second": 5, "next": -1, "elsewhere": -1}


def test_what_an_agent_asks_a_sub_agent_is_no_message_to_the_one_before_it() -> None:
    """One after the other: the second's prompt, which the model wrote, was how the first was judged."""
    made = [
        generation("1", "main", 0),
        generation("2", "first", 1),
        generation("3", "second", 2),
        generation("4", "second", 3),
        generation("5", "of the second", 3),
        generation("6", "main", 4),
        generation("7", "next", 9),
        generation("8", "next", 10),
        generation("9", "last", 10),
    ]
    found = scanned(made, [])
    told = dict(zip(found.episodes, decide(found).follow_up.tolist(), strict=True))
    assert told == {"main": 6, "first": 6, "second": 6, "of the second": 6, "next": 8, "last": -1}


def test_only_what_a_session_has_under_way_is_between_its_messages() -> None:
    """An episode of several sessions, or of plain completions, hides no message of a session in between."""
    made = [
        generation("1", "both", 0, session="a"),
        generation("2", "one", 0, session="b"),
        generation("3", "typed", 1, session="b", api="completions"),
        generation("4", "two", 2, session="b"),
        generation("5", "typed", 3, session="b", api="completions"),
        generation("6", "both", 3, session="c"),
    ]
    found = scanned(made, [])
    told = dict(zip(found.episodes, decide(found).follow_up.tolist(), strict=True))
    assert told == {"both": -1, "one": 3, "typed": -1, "two": -1}


def test_what_a_checkpoint_after_live_sampled_is_not_settled() -> None:
    """After a rollback it is too far from what is live, and near again when its own checkpoint is."""
    made = [generation("1", "e3", 0), generation("2", "below", 0, spans=(Span(0, 2, "c"),))]
    found = scanned(made, [])
    rolled_back = replace(RULES, after_live=frozenset({"c"}))
    nobody = np.zeros(2, dtype=np.bool_)
    assert plan(found, RULES, 10 * HOUR, nobody).resume_seq == 3
    decided = plan(found, rolled_back, 10 * HOUR, nobody)
    assert reasons(found, decided) == {"e3": "consumed", "below": "lag"}
    assert decided.resume_seq == 2


def test_an_empty_window() -> None:
    found = scanned([], [])
    decided = decide(found)
    assert (len(decided.taken), decided.resume_seq) == (0, 0)
    assert left_behind(decided) == {}


generation_lists = st.lists(
    st.builds(
        lambda n, at, session, checkpoint, no_train: {
            "episode": f"e{n}", "at": at, "session": f"{n}-{session}", "no_train": no_train,
            "spans": (Span(0, 2, checkpoint),),
        },
        st.integers(0, 5),
        st.integers(0, 12 * HOUR),
        st.integers(0, 2),
        st.sampled_from("abcx"),
        st.booleans(),
    ),
    max_size=12,
)  # fmt: skip
event_lists = st.lists(
    st.tuples(
        st.integers(0, 14),
        st.sampled_from(["edit_applied", "user_message", "thumbs", "session_closed"]),
        st.integers(0, 12 * HOUR),
        st.sampled_from(["k", "other"]),
    ),
    max_size=12,
)


def test_events_after_the_horizon_by_hand() -> None:
    """a's last activity is its edit at 1: past 1 h and 1 ms nothing counts but what has horizons itself."""
    found = scanned(
        [generation("a", "a", 0), generation("b", "b", 9 * HOUR)],
        [
            event("e1", "a", "edit_applied", 1),
            event("e2", "a", "user_message", HOUR + 1),
            event("e3", "a", "outcome", HOUR + 2),
            event("e4", "a", "edit_survival", 2 * HOUR),
            event("e5", "b", "outcome", 30 * HOUR),  # b is not taken
            event("e6", "a", "thumbs", 9 * HOUR, key="another"),
        ],
    )
    assert events_after_horizon(found, decide(found, now=10 * HOUR - 1), HOUR) == 1


def test_events_left_behind_by_hand() -> None:
    made = [
        generation("1", "ok", 0),
        generation("2", "e3", 0),
        generation("3", "old", 0, spans=(Span(0, 2, "c"),)),
        generation("4", "young", 10 * HOUR),
    ]
    said = [
        event("a", "1", "thumbs", 1),
        event("b", "1", "thumbs", 1, key="other"),
        event("c", "2", "thumbs", 1),
        event("d", "2", "edit_reverted", 30 * HOUR),
        event("e", "3", "thumbs", 1),
        event("f", "4", "thumbs", 1),
        event("g", "gone", "thumbs", 1),
        event("h", "gone", "thumbs", 1, key="other"),
    ]
    found = scanned(made, said)
    assert events_left_behind(found, decide(found)) == {
        "consumed": 2, "lag": 1, "immature": 1, "no_generation": 2, "foreign_key": 1,
    }  # fmt: skip


def test_what_the_collect_before_told_too_by_hand() -> None:
    """It had read the first four records: the third episode had a call by then, and was asked not to be kept
    later; the fourth waited."""
    made = [
        generation("1", "e3", 0),
        generation("2", "kept from us", 0, no_train=True),
        generation("3", "then too", 0),
        generation("4", "waiting", 10 * HOUR),
        generation("5", "then too", 1, no_train=True),
        generation("6", "since", 1, no_train=True),
    ]
    said = [event("a", "1", "thumbs", 1), event("b", "4", "thumbs", 1), event("c", "gone", "thumbs", 1)]
    found = scanned(made, said)
    decided = decide(found)
    assert left_behind(decided) == {"no_train": 3, "consumed": 1, "immature": 1}
    assert left_again(found, decided, 4) == {
        "left_behind": {"no_train": 1, "consumed": 1}, "events_left_behind": {},
    }  # fmt: skip
    assert left_again(found, decided, 8) == {
        "left_behind": {"no_train": 3, "consumed": 1}, "events_left_behind": {"consumed": 1},
    }  # fmt: skip
    assert left_again(found, decided, 0) == {"left_behind": {}, "events_left_behind": {}}


@given(generation_lists, event_lists, st.randoms(use_true_random=False))
def test_the_order_of_arrival_decides_nothing(
    made: list[dict[str, Any]], said: list[tuple[int, str, int, str]], order: random.Random
) -> None:
    generations = [generation(str(n), **fields) for n, fields in enumerate(made)]
    events = [event(f"v{n}", str(target), kind, at, key) for n, (target, kind, at, key) in enumerate(said)]
    found = scanned(generations, events)
    decided = decide(found)
    before = reasons(found, decided)
    taken = {found.generations["id"].to_pylist()[row] for row in np.flatnonzero(decided.take_generation)}

    # every episode has one reason; what is taken is whole; the audit adds up
    assert {g.id for g in generations if before[g.episode] == "taken"} == taken
    table = audit(found, decided)
    assert sum(int(row["episodes"]) for row in table) == len(found.episodes)
    turns = sum(row["turns"] * row["episodes"] for row in table if row["episodes"])
    assert round(turns) == len(generations)
    attached = {n for n, e in enumerate(events) if e.key_id == "k" and e.generation_id in taken}
    assert set(np.flatnonzero(decided.take_event)) == attached
    assert sum(events_left_behind(found, decided).values()) == len(events) - len(attached)

    # everything that a later collect of a descendant may still take has a seq at or after the resume point
    later = {e for e, reason in before.items() if reason in ("taken", "immature", "arm")}
    seqs = [seq for seq, g in enumerate(generations, 1) if g.episode in later]
    assert all(seq >= decided.resume_seq for seq in seqs)

    order.shuffle(generations)
    order.shuffle(events)
    again = scanned(generations, events)
    assert reasons(again, decide(again)) == before


@given(generation_lists, st.integers(0, 14 * HOUR), st.integers(0, 14 * HOUR))
def test_time_only_adds(made: list[dict[str, Any]], one: int, other: int) -> None:
    found = scanned([generation(str(n), **fields) for n, fields in enumerate(made)], [])
    early, late = (set(decide(found, now).taken.tolist()) for now in sorted((one, other)))
    assert early <= late
