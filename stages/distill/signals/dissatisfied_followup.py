"""Signal `dissatisfied_followup`: probability that the user's next message says the answer was no good.

Explicit behaviour outranks text. A thumb decides by itself, with a message or without; so does, where there
is no thumb, an interruption, or an edit or a call refused with a reason, which is the follow-up. When an edit
of the episode ended undone (`edits.py`: refused or reverted in time, and not made good by a later edit),
whatever message comes is taken for dissatisfaction; so is the same request once more, after an answer that
asked nothing.
With none of these and no message in time the signal is not known, an edit that ended undone included: there
is no follow-up to judge then, and what the undoing itself says is in `edit_persistence` and `edit_rejected`
already.

What is left is text: the embedded model judges it (`followup/`), or a model behind an endpoint (`judge.py`).
Moving on to the next thing is satisfaction.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from cursorbench.sessions.spoken import parts, words_of
from stages.distill.order import in_order
from stages.distill.signals.followup.features import Followup, interrupted
from stages.distill.text import LIMIT, words
from stages.records import Event

EXPLICIT_NO = 0.95
EXPLICIT_YES = 0.05
_SAME = 0.95  # share of words, in their order, from which on a message is the request once more
_MOST = 400  # words; longer ones must be the same, as comparing takes the square of their number
_NOTE = len("[Request interrupted by user")  # it stands first: who quotes it further on has stopped nothing
_FEWEST = 3  # words; shorter ones ("go on", "yes") are said again without reproach


def repeats_request(message: str, request: str) -> bool:
    """Whether a message is the request once more: at least `_FEWEST` words, nearly all, in one order."""
    said, before = words(message), words(request)
    if min(len(said), len(before)) < _FEWEST or max(len(message), len(request)) > LIMIT:
        return False
    if not 0.9 <= len(said) / len(before) <= 1 / 0.9:
        return False
    same = said == before
    if not same and len(said) <= _MOST:
        matcher = difflib.SequenceMatcher(None, said, before, autojunk=False)
        same = matcher.real_quick_ratio() >= _SAME <= matcher.quick_ratio() and matcher.ratio() >= _SAME
    return same and not _goes_on(message)


def refused_with_reason(event: Event) -> bool:
    """Whether the user refused an edit, or a call of any tool, and said why."""
    refused = event.type == "edit_rejected" or (event.type == "tool_result" and not event.data.get("ok"))
    reason = event.data.get("reason")
    return refused and isinstance(reason, str) and bool(reason.strip())


def followup(
    events: Sequence[Event],
    request: str,
    answer: str,
    asked: bool,
    undone: bool,
    answered_at: int,
    horizon_ms: int,
) -> float | Followup | None:
    """What behaviour says of one episode, or the text to be judged.

    Args:
        events: the episode's events with their data opened, as they were received.
        request: text of the episode's request.
        answer: what its last answer says, without what was thought before it.
        asked: the episode ended in a question.
        undone: an edit of the episode ended undone, see `Edits.undone`.
        answered_at: event time of the last answer (ms).
        horizon_ms: a message later than this is not about the answer.

    Returns:
        A probability when behaviour decides; None when there was no message, thumb, interruption or reason
        for a refusal in time.
    """
    in_time = in_order(e for e in events if e.at <= answered_at + horizon_ms)
    thumbs = [e.data.get("value") for e in in_time if e.type == "thumbs"]
    if thumbs and isinstance(thumbs[-1], int | float):
        return EXPLICIT_NO if thumbs[-1] < 0 else EXPLICIT_YES
    if any(e.type == "interrupted" or refused_with_reason(e) for e in in_time):
        return EXPLICIT_NO
    messages = [e.data.get("text") for e in in_time if e.type == "user_message"]
    texts = [text for text in messages if isinstance(text, str) and text.strip() and _by_a_person(text)]
    if not texts:
        return None
    message = words_of(texts[0])
    stopped = any(part.stopped for part in parts(texts[0])) or interrupted(message.lstrip()[:_NOTE])
    if undone or stopped or (not asked and repeats_request(message, request)):
        return EXPLICIT_NO
    return Followup(message, request, answer, asked)


def probabilities(cases: Sequence[Followup]) -> list[float]:
    """The signal where text decides, by the embedded model."""
    from stages.distill.signals.followup.model import judge

    return [float(p) for p in judge(cases)]


def _by_a_person(text: str) -> bool:
    """Whether somebody typed any of it, or stopped the agent: a client's own texts judge nothing."""
    return not all(part.automatic for part in parts(text))


def _goes_on(message: str) -> bool:
    from stages.distill.signals.followup.patterns import patterns

    return bool(patterns().found([message], ["goes_on"])["goes_on"][0])
