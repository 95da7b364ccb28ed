"""What was thought and what was said, in whole answers and in pieces."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.harness.chat import whole
from cursorbench.harness.sse import assembled
from cursorbench.harness.thoughts import Thoughts, apart

PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<seed:think>",
        "</seed:think>",
        "<seed:",
        "<thi",
        "nk>",
        "</thi",
        "\n",
        " ",
        "a",
        "<",
        "é",
        "\r\n",
    ]
)


@pytest.mark.parametrize(
    ("text", "begun", "thought", "said"),
    [
        ("Done.", False, "", "Done."),
        ("<think>\nHm.\n</think>\n\nDone.", False, "Hm.", "Done."),
        ("<think>\n\n</think>\n\nDone.", False, "", "Done."),  # told not to think
        ("\n<think>Hm. So:\n\n1 < 2</think>\n  x = 1\n", False, "Hm. So:\n\n1 < 2", "  x = 1\n"),
        ("Hm.\n</think>\n\nDone.", True, "Hm.", "Done."),
        ("<think>Hm.</think>Done.", True, "Hm.", "Done."),  # opened a second time
        ("Hm.\n</think>\n\nDone.", False, "", "Hm.\n</think>\n\nDone."),  # a text about the tag
        ("The tag <think>x</think>", False, "", "The tag <think>x</think>"),
        ("<think>Hm </think> a </think>", False, "Hm", " a </think>"),
        ("<think>Hm, and </thi", False, "Hm, and </thi", ""),  # cut by its length
        ("Hm ", True, "Hm", ""),
        ("<seed:think>Hm: </think>.</seed:think>Done.", False, "Hm: </think>.", "Done."),
        ("<think>Hm, </seed:think>.</think>Done.", False, "Hm, </seed:think>.", "Done."),
        ("<seed:thi", False, "", "<seed:thi"),
        ("<thi", False, "", "<thi"),
        (" \n", False, "", " \n"),
        ("<think>Hm.</think>\n\n", False, "Hm.", ""),
        # where nobody tells how the prompt ended
        ("Hm.\n</think>\n\nDone.", None, "Hm.", "Done."),
        ("<think>Hm.</think>Not </think>", None, "Hm.", "Not </think>"),
        ("It strips `</think>` now.", None, "", "It strips `</think>` now."),
        ("</think>Done.", None, "", "Done."),
        ("Done, and <think>x</think>.", None, "", "Done, and <think>x</think>."),
        ("Hm ", None, "", "Hm "),
    ],
)
def test_an_answer_apart(text: str, begun: bool | None, thought: str, said: str) -> None:
    assert apart(text, begun=begun) == (thought, said)


@given(st.lists(PIECES, max_size=12).map("".join), st.booleans(), st.lists(st.integers(0, 60), max_size=20))
def test_in_pieces_it_reads_as_whole(text: str, begun: bool, cuts: list[int]) -> None:
    thoughts, found = Thoughts(begun=begun), ["", ""]
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for piece in [*(thoughts.feed(text[a:b]) for a, b in pairwise(places)), thoughts.finish()]:
        found = [found[0] + piece.thought, found[1] + piece.said]
    assert tuple(found) == apart(text, begun=begun)


def test_no_more_is_held_back_than_may_be_a_tag() -> None:
    thoughts = Thoughts()
    told = [thoughts.feed(piece) for piece in ("<think>Hm, ", "1 <", " 2 </th", "ink>\n", "Done ", "<think>")]
    assert told == [("Hm,", ""), (" 1", ""), (" < 2", ""), ("", ""), ("", "Done "), ("", "<think>")]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_of_a_stream_are_put_together(name: str) -> None:
    deltas = [{name: "Hm"}, {name: "."}, {"content": "Done."}]
    pieces = [{"choices": [{"delta": delta}]} for delta in deltas]
    lines = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
    message = assembled(f"{lines}data: [DONE]\n\n".encode())["choices"][0]["message"]
    assert whole(message, 0) == {"role": "assistant", "content": "Done.", "reasoning_content": "Hm."}
