"""What counts as the answer of a generation that was recorded as it was sampled."""

from __future__ import annotations

import pytest

from stages.recorded_answer import taken_apart


@pytest.mark.parametrize(
    ("answer", "begun", "thought", "said"),
    [
        ("<think>ab</think>Done", "0", "ab", "Done"),
        ("ab</think>Done", "1", "ab", "Done"),
        ("Should I?", "1", "Should I?", ""),  # cut by its length while it thought
        ("Should I?</think>Done", "0", "", "Should I?</think>Done"),  # the user reads all of it
        ("Sure. <think>Should I?", "0", "", "Sure. <think>Should I?"),
        ("ab</think>Done", "", "ab", "Done"),  # nobody told: a record of before, a log
        ("Should I?", "", "", "Should I?"),
    ],
)
def test_what_was_thought_and_said(answer: str, begun: str, thought: str, said: str) -> None:
    features = [("client", "x"), *([("thought_begun", begun)] if begun else [])]
    assert taken_apart(answer, features) == (thought, said)
