"""What a simulated engineer does after an answer: keeps, reverts or rewrites the edit, speaks or not.

Depends on what became of the code and on the person's temper, never on how the answer was scored.
All chance is drawn from the case alone, so the same person meets two checkpoints with the same luck.
Times are seconds of event time after the answer. Not here: how events travel (`simulate.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, Literal

from cursorbench.harness.budget import StopReason
from cursorbench.harness.call_blocks import OPEN
from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.results import Edit
from cursorbench.sessions.lines import persistence
from evals.population import phrases
from evals.population.judge import Verdict, judge_text, trace
from evals.population.people import Case, seeded

HORIZON_S = 3600.0  # training horizon: is the edit still there an hour later
LATE_HORIZON_S = 86_400.0  # metric horizon


class Outcome(StrEnum):
    """What the person finds when the agent has stopped."""

    RIGHT = "right"  # the code does what was meant
    WRONG = "wrong"  # the code changed, but not to that
    ASKED = "asked"  # a question, and the code as it was
    JUNK = "junk"  # a broken call on the screen, and the code as it was
    NOTHING = "nothing"  # words without a question, and the code as it was


@dataclass(frozen=True)
class Happening:
    """One event for `POST /v1/events`: `turn` is the model call it belongs to, from 0."""

    type: str
    after_s: float
    turn: int
    data: dict[str, Any]


@dataclass(frozen=True)
class Reaction:
    """What the person does.

    Attributes:
        persisted: share of the change still there after `HORIZON_S`; None when nothing changed.
        dissatisfied: the next message expresses dissatisfaction with the answer.
        said: the next message, "" for silence.
        said_after_s: when it is sent.
        follow: "answer": `said` goes on in this conversation; "repeat": `said` is the request once more.
    """

    outcome: Outcome
    verdict: Verdict
    persisted: float | None
    dissatisfied: bool
    said: str
    said_after_s: float
    follow: Literal["", "answer", "repeat"]
    happenings: tuple[Happening, ...]


@dataclass(frozen=True)
class _Luck:
    """Every chance of one reaction, drawn in one order whatever the answer was."""

    notices: float
    dislikes: float
    talks: float
    complains: float
    how: float
    repeats: float
    late: float
    thumbs: float
    pastes: float
    moves_on: float
    words: int
    undo_after_s: float
    say_after_s: float

    @classmethod
    def draw(cls, random: Random, pace_s: float) -> _Luck:
        return cls(
            notices=random.random(),
            dislikes=random.random(),
            talks=random.random(),
            complains=random.random(),
            how=random.random(),
            repeats=random.random(),
            late=random.random(),
            thumbs=random.random(),
            pastes=random.random(),
            moves_on=random.random(),
            words=random.randrange(10**6),
            undo_after_s=pace_s * random.uniform(0.3, 4.0),
            say_after_s=pace_s * random.uniform(0.5, 3.0),
        )

    def pick(self, lines: Sequence[str]) -> str:
        return lines[self.words % len(lines)]


def outcome_of(loop: AgentLoop, verdict: Verdict) -> Outcome:
    """What the person finds, from the end of the chain and the state of the code."""
    if verdict is Verdict.RIGHT:
        return Outcome.RIGHT
    if verdict is not Verdict.UNCHANGED:
        return Outcome.WRONG
    if loop.stop in (StopReason.BROKEN_CALL, StopReason.TRUNCATED) or OPEN in loop.final_text:
        return Outcome.JUNK
    return Outcome.ASKED if "?" in loop.final_text else Outcome.NOTHING


def _complaint_chance(case: Case, outcome: Outcome, noticed: bool, junk_too: bool) -> float:
    """Chance that the message, if there is one, is a complaint."""
    who = case.person
    if outcome is Outcome.WRONG:
        return 0.9 if noticed else 0.03
    if outcome is Outcome.RIGHT:
        return max(who.fussiness, 0.4 if junk_too else 0.0)
    if outcome is Outcome.JUNK:
        return 0.9
    if outcome is Outcome.NOTHING:
        return 0.4 if case.kind == "beyond" else 0.85
    return {"vague": 0.04, "beyond": 0.4}.get(case.kind, who.impatience)


def _complaint(case: Case, outcome: Outcome, now: str, luck: _Luck) -> tuple[str, Literal["", "repeat"]]:
    """Words of displeasure, and whether they are the request once more."""
    if outcome is Outcome.JUNK and luck.pastes < 0.5:
        return luck.pick(phrases.ABOUT_JUNK), ""
    if outcome is Outcome.ASKED:
        return luck.pick(phrases.ANNOYED), ""
    error = trace(case, now)
    if error and luck.pastes < 0.6:
        return phrases.TRACE.format(path=case.path, line=1 + now.count("\n"), error=error), ""
    if luck.repeats < 0.3:
        return luck.pick(phrases.REPEATS).format(request=case.intent.request), "repeat"
    return luck.pick(phrases.COMPLAINTS), ""


def _pleasant(
    case: Case, outcome: Outcome, luck: _Luck, next_request: str
) -> tuple[str, Literal["", "answer"]]:
    """What somebody says who is content: an answer to the question, thanks, or the next thing."""
    if outcome is Outcome.ASKED:
        if case.intent.clear:
            return case.intent.clear, "answer"
        if case.kind == "beyond":
            return luck.pick(phrases.SHRUGS), ""
        return case.intent.request, "answer"
    if outcome in (Outcome.NOTHING, Outcome.JUNK):
        return luck.pick(phrases.SHRUGS), ""
    if luck.moves_on < 0.55:
        return next_request or luck.pick(phrases.MOVING_ON), ""
    return luck.pick(phrases.THANKS), ""


def _by_turn(edits: Sequence[Edit]) -> list[Happening]:
    """One `edit_applied` per model call and file: the text before its first and after its last edit."""
    spans: dict[tuple[int, str], list[Edit]] = {}
    for edit in edits:
        spans.setdefault((edit.turn, edit.path), []).append(edit)
    return [
        Happening(
            "edit_applied",
            1.0 + turn,
            turn,
            {"path": path, "before": group[0].before, "after": group[-1].after},
        )
        for (turn, path), group in spans.items()
    ]


def _fate(case: Case, undone: bool, luck: _Luck) -> tuple[str, str]:
    """How an edit ends: ("kept" | "rejected" | "reverted" | "rewritten", the file's text afterwards)."""
    if not undone:
        return "kept", ""
    if luck.how < 0.25:
        return "rejected", case.before
    if luck.how < 0.65 or not case.intent.goal:
        return "reverted", case.before
    return "rewritten", case.intent.goal


def _edit_happenings(
    case: Case, edits: Sequence[Edit], now: str, undone: bool, luck: _Luck
) -> tuple[list[Happening], float | None]:
    """What the editor reports of an edit, and the share of it that is left at the horizon."""
    found = _by_turn(edits)
    if now == case.before:
        return found, None
    turn = edits[-1].turn
    fate, text = _fate(case, undone, luck)
    later = text or now
    if fate == "rejected":
        found.append(
            Happening("edit_rejected", 2.0 + min(luck.undo_after_s, 60.0), turn, {"path": case.path})
        )
    elif fate == "reverted":
        found.append(Happening("edit_reverted", 2.0 + luck.undo_after_s, turn, {"path": case.path}))
    found.append(
        Happening(
            "edit_survival",
            HORIZON_S + 5.0,
            turn,
            {"path": case.path, "horizon_s": HORIZON_S, "now": later},
        )
    )
    much_later = case.before if fate == "kept" and luck.late < 0.05 else later
    found.append(
        Happening(
            "edit_survival",
            LATE_HORIZON_S + 5.0,
            turn,
            {"path": case.path, "horizon_s": LATE_HORIZON_S, "now": much_later},
        )
    )
    return found, persistence(case.before, now, later).rate


def react(case: Case, loop: AgentLoop, now: str, next_request: str = "", attempt: int = 0) -> Reaction:
    """What the person does after the agent stopped.

    Args:
        case: the request.
        loop: the agent, stopped and not aborted.
        now: the file's text after the agent.
        next_request: words of the person's next request in this session, "" for none.
        attempt: tells apart several answers to one case; part of the luck.
    """
    who = case.person
    luck = _Luck.draw(seeded("reaction", case.id, attempt), who.pace_s)
    verdict = judge_text(case, now)
    outcome = outcome_of(loop, verdict)
    junk_too = OPEN in loop.final_text
    attention = max(who.attention, 0.98) if verdict is Verdict.BROKEN else who.attention
    noticed = outcome is Outcome.WRONG and luck.notices < attention
    undone = noticed or (outcome is Outcome.RIGHT and luck.dislikes < who.fussiness)
    happenings, persisted = _edit_happenings(case, loop.edits, now, undone, luck)
    answers = outcome is Outcome.ASKED and case.kind == "vague"
    talks = luck.talks < (max(who.talkativeness, 0.9) if answers else who.talkativeness)
    upset = luck.complains < _complaint_chance(case, outcome, noticed, junk_too)
    upset = upset or (undone and outcome is Outcome.RIGHT)
    said: str = ""
    follow: Literal["", "answer", "repeat"] = ""
    if talks:
        said, follow = (
            _complaint(case, outcome, now, luck) if upset else _pleasant(case, outcome, luck, next_request)
        )
        happenings.append(Happening("user_message", luck.say_after_s, loop.turns - 1, {"text": said}))
    if luck.thumbs < 0.04:
        data = {"value": -1 if upset else 1}
        happenings.append(Happening("thumbs", luck.say_after_s / 2, loop.turns - 1, data))
    return Reaction(
        outcome,
        verdict,
        persisted,
        talks and upset,
        said,
        luck.say_after_s,
        follow,
        tuple(sorted(happenings, key=lambda event: event.after_s)),
    )
