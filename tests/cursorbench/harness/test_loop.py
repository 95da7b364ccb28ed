"""The agent loop: what it asks, what it runs, why it stops."""

import json

import pytest

from cursorbench.harness import hermes
from cursorbench.harness.budget import Budget, StopReason
from cursorbench.harness.chat import assistant_message
from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.toolbox import Toolbox
from cursorbench.harness.tools import SMALL_TOOLS
from cursorbench.harness.workplace import Folder

CODE = "def total(a, b):\n    return a + b\n"


def small(folder):
    return Toolbox(Folder(folder), SMALL_TOOLS)


def edit(old, new, path="shop.py"):
    return hermes.render("edit_file", {"path": path, "old": old, "new": new})


@pytest.fixture
def loop(tmp_path):
    (tmp_path / "shop.py").write_text(CODE)
    return AgentLoop(small(tmp_path), "Edit.", "minus in total", Budget(turns=3))


def test_an_edit_and_a_last_word(loop, tmp_path):
    request = loop.next_request()
    assert request.messages == (
        {"role": "system", "content": "Edit."},
        {"role": "user", "content": "minus in total"},
    )
    assert request.body("rtrl")["model"] == "rtrl"
    assert "temperature" not in request.body("rtrl"), "left to who serves"
    loop.receive(assistant_message("On it. " + edit("a + b", "a - b")))
    request = loop.next_request()
    assert [message["role"] for message in request.messages] == ["system", "user", "assistant", "tool"]
    assert request.messages[2]["content"] == "On it. "
    assert request.messages[2]["tool_calls"][0]["id"] == request.messages[3]["tool_call_id"]
    assert request.messages[3]["content"] == "ok"
    loop.receive(assistant_message("Done.", 1))
    assert loop.next_request() is None
    assert loop.stop is StopReason.ANSWERED
    assert loop.final_text == "Done."
    assert [(e.path, e.turn, "a - b" in e.after) for e in loop.edits] == [("shop.py", 0, True)]
    assert (tmp_path / "shop.py").read_text() == loop.edits[0].after
    json.dumps(request.body("rtrl"))


def test_parallel_edits_of_one_file_build_on_each_other(loop):
    loop.receive(assistant_message(edit("a + b", "a - b") + edit("def total", "def net")))
    assert loop.edits[1].before == loop.edits[0].after
    assert loop.edits[1].after == "def net(a, b):\n    return a - b\n"


def test_an_unparsable_call_alone_ends_the_chain_and_reaches_the_user(loop):
    junk = '<tool_call>{"name": "edit_file", "arguments": {</tool_call>'
    loop.receive(assistant_message(junk))
    assert loop.stop is StopReason.BROKEN_CALL
    assert loop.final_text == junk
    assert loop.invalid_calls == 1
    assert loop.calls[0].error == "unparsable"


def test_a_call_that_ran_goes_on_beside_one_that_did_not_parse(loop):
    loop.receive(assistant_message(edit("a + b", "a - b") + "<tool_call>{"))
    assert loop.stop is None
    assert [call.error for call in loop.calls] == ["unparsable", ""]
    assert len(loop.edits) == 1


def test_invalid_calls_are_answered_and_counted(loop):
    loop.receive(
        assistant_message(hermes.render("write_file", {}) + hermes.render("edit_file", {"path": "x"}))
    )
    assert loop.stop is None
    assert [call.error for call in loop.calls] == ["unknown_tool", "schema"]
    assert [m["content"] for m in loop.messages[-2:]] == [
        "error: no such tool",
        "error: arguments do not fit the tool",
    ]


def test_the_last_turn_ends_it(loop):
    for turn in range(3):
        loop.receive(assistant_message(hermes.render("read_file", {"path": "shop.py"}), turn))
    assert loop.stop is StopReason.MAX_TURNS
    assert loop.turns == 3
    with pytest.raises(RuntimeError):
        loop.receive(assistant_message("more"))


def test_running_out_of_tokens(loop):
    loop.receive(assistant_message("I wou"), finish_reason="length")
    assert loop.stop is StopReason.TRUNCATED


def test_an_episode_without_an_answer(loop):
    loop.abort()
    assert loop.next_request() is None
    assert loop.stop is StopReason.ABORTED


def test_history_comes_before_the_request(tmp_path):
    history = [{"role": "user", "content": "fix it"}, {"role": "assistant", "content": "What?"}]
    loop = AgentLoop(small(tmp_path), "Edit.", "minus", history=history)
    assert [m["content"] for m in loop.next_request().messages] == ["Edit.", "fix it", "What?", "minus"]


def test_own_tools_only(tmp_path):
    (tmp_path / "shop.py").write_text(CODE)
    loop = AgentLoop(Toolbox(Folder(tmp_path), ()), "Edit.", "minus")
    loop.receive(assistant_message(edit("a + b", "a - b")))
    assert loop.calls[0].error == "unknown_tool"
    assert loop.edits == []


def test_a_call_with_more_than_its_schema_allows_is_not_run(loop):
    loop.receive(
        assistant_message(
            hermes.render("edit_file", {"path": "shop.py", "old": "a + b", "new": "c", "x": "1"})
        )
    )
    assert loop.calls[0].error == "schema"
    assert loop.edits == []
