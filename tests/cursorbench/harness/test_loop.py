"""The agent loop: what it asks, what it runs, why it stops."""

import json
import threading

import pytest

from cursorbench.harness import call_parser
from cursorbench.harness.budget import INFRASTRUCTURE, Budget, StopReason, Usage
from cursorbench.harness.chat import assistant_message
from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.results import ErrorClass, ToolResult
from cursorbench.harness.summary import SelfSummary
from cursorbench.harness.toolbox import Tool, Toolbox, define
from cursorbench.harness.tools import SMALL_TOOLS
from cursorbench.harness.workplace import Folder
from tests.cursorbench.harness.places import unboxed

HISTORY = {"role": "user", "content": "earlier"}
CODE = "def total(a, b):\n    return a + b\n"


def small(folder):
    return Toolbox(Folder(folder), SMALL_TOOLS)


def edit(old, new, path="shop.py"):
    return call_parser.render("edit_file", {"path": path, "old": old, "new": new})


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


@pytest.mark.parametrize(
    "junk",
    [
        '<tool_call>{"name": "edit_file", "arguments": {</tool_call>',
        "<tool_call>edit_file\n<arg_key>path</arg_value></tool_call>",
        '<minimax:tool_call>\n<invoke name="edit_file">\n</minimax:tool_call>',
        "<seed:tool_call>\n<function=edit_file>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>edit_file<｜tool▁calls▁end｜>",
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="edit_file">\n',
    ],
)
def test_an_unparsable_call_alone_ends_the_chain_and_reaches_the_user(loop, junk):
    """Of whatever family: who serves the model tells of calls that parsed, and of no others."""
    loop.receive(assistant_message(junk))
    assert loop.stop is StopReason.BROKEN_CALL
    assert loop.final_text == junk
    assert loop.invalid_calls == 1
    assert loop.calls[0].error == "unparsable"


@pytest.mark.parametrize(
    "thought", ["<think>Is it <tool_call>{?</think>\n\n", "Is it <tool_call>{?</think>\n"]
)
def test_what_a_server_leaves_of_thoughts_in_a_text_is_not_said(tmp_path, loop, thought):
    """One without a reader of thoughts: what was thought of counted as a broken call, or as a question."""
    loop.receive({"content": f"{thought}Done."})
    assert (loop.stop, loop.invalid_calls, loop.final_text) == (StopReason.ANSWERED, 0, "Done.")
    assert loop.messages[-1]["content"] == f"{thought}Done.", "told again as it came"
    summing = AgentLoop(small(tmp_path), "Edit.", "go", Budget(turns=9), summary=SelfSummary(10))
    summing.receive(assistant_message(READ), usage=Usage(100, 20))
    summing.receive({"content": f"{thought}All read."}, usage=Usage(100, 20))
    assert summing.messages[-1]["content"].endswith("work:\n\nAll read.")


def test_a_call_that_ran_goes_on_beside_one_that_did_not_parse(loop):
    loop.receive(assistant_message(edit("a + b", "a - b") + "<tool_call>{"))
    assert loop.stop is None
    assert [call.error for call in loop.calls] == ["unparsable", ""]
    assert len(loop.edits) == 1


def test_invalid_calls_are_answered_and_counted(loop):
    loop.receive(
        assistant_message(
            call_parser.render("write_file", {}) + call_parser.render("edit_file", {"path": "x"})
        )
    )
    assert loop.stop is None
    assert [call.error for call in loop.calls] == ["unknown_tool", "schema"]
    assert [m["content"] for m in loop.messages[-2:]] == [
        "error: no such tool",
        "error: arguments do not fit the tool",
    ]


def test_the_last_turn_ends_it(loop):
    for turn in range(3):
        loop.receive(assistant_message(call_parser.render("read_file", {"path": "shop.py"}), turn))
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
            call_parser.render("edit_file", {"path": "shop.py", "old": "a + b", "new": "c", "x": "1"})
        )
    )
    assert loop.calls[0].error == "schema"
    assert loop.edits == []


def waiter(parties):
    """A tool whose calls end when as many are under way."""
    met = threading.Barrier(parties, timeout=120)

    def run(place, arguments, left_s):
        met.wait()
        return ToolResult("met", "failed" if "bad" in arguments else "")

    return Tool(define("wait", "Wait.", {"bad": {"type": "boolean"}}, []), run)


def test_calls_of_one_message_run_side_by_side_in_their_order(tmp_path):
    loop = AgentLoop(Toolbox(Folder(tmp_path), (waiter(4),)), "Go.", "all", Budget(turns=3))
    calls = [call_parser.render("wait", arguments) for arguments in ({}, {"bad": True}, {}, {})]
    loop.receive(assistant_message("".join(calls)))
    (turn,) = loop.history
    assert [call.tool_error for call in loop.calls] == ["", "failed", "", ""], "one that fails stops no other"
    assert [m["tool_call_id"] for m in loop.messages[-4:]] == [f"call_0_{n}" for n in range(4)]
    ends = [call.started_s + call.seconds for call in loop.calls]
    assert max(call.started_s for call in loop.calls) <= min(ends), "all began before the first ended"
    assert all(call.started_s >= 0 for call in loop.calls)
    assert turn.tools_s >= max(ends)


def test_an_edit_waits_for_what_is_before_it_and_is_seen_by_what_comes_after(tmp_path):
    (tmp_path / "shop.py").write_text(CODE)
    loop = AgentLoop(small(tmp_path), "Edit.", "go", Budget(turns=3))
    read = call_parser.render("read_file", {"path": "shop.py"})
    parts = [read, edit("a + b", "a - b"), read, edit("a - b", "a * b"), edit("nowhere", "x"), read]
    loop.receive(assistant_message("".join(parts)))
    results = [call.result for call in loop.calls]
    assert [results[place].count("a - b") for place in (0, 2)] == [0, 1]
    assert results[5] == CODE.replace("a + b", "a * b")
    assert [call.tool_error for call in loop.calls] == ["", "", "", "", "not_found", ""]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


READ = call_parser.render("read_file", {"path": "shop.py"})


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(turns=2), StopReason.MAX_TURNS),
        (Budget(turns=9, output_tokens=40), StopReason.MAX_OUTPUT_TOKENS),
        (Budget(turns=9, total_tokens=240), StopReason.MAX_TOTAL_TOKENS),
        (Budget(turns=9, wall_s=20), StopReason.MAX_SECONDS),
        (Budget(turns=9, tool_calls=2), StopReason.MAX_TOOL_CALLS),
    ],
)
def test_every_budget_has_a_reason_of_its_own(tmp_path, budget, reason):
    (tmp_path / "shop.py").write_text(CODE)
    clock = Clock()
    loop = AgentLoop(small(tmp_path), "Edit.", "go", budget, max_tokens=30, clock=clock)
    for turn in range(2):
        request = loop.next_request()
        left = budget.output_tokens - 20 * turn
        assert request.max_tokens == min(30, left)
        clock.now += 10
        loop.receive(assistant_message(READ, turn), usage=Usage(100, 20))
    assert loop.stop is reason
    assert loop.next_request() is None
    assert [call.tool_error for call in loop.calls] == ["", ""], "what the last answer called is still run"
    assert loop.episode().seconds == 20


def test_calls_beyond_the_budget_are_not_run(tmp_path):
    (tmp_path / "shop.py").write_text(CODE)
    loop = AgentLoop(small(tmp_path), "Edit.", "go", Budget(turns=9, tool_calls=2))
    loop.receive(assistant_message(READ + READ + edit("a + b", "a - b")))
    assert [call.tool_error for call in loop.calls] == ["", "", "over_budget"]
    assert loop.calls[2].error_class is ErrorClass.INVALID_ARGUMENTS
    assert (tmp_path / "shop.py").read_text() == CODE
    assert loop.stop is StopReason.MAX_TOOL_CALLS


def test_time_that_runs_out_during_a_model_call_ends_it_before_the_next(tmp_path):
    clock = Clock()
    loop = AgentLoop(small(tmp_path), "Edit.", "go", Budget(turns=9, wall_s=5), clock=clock)
    assert loop.next_request() is not None
    clock.now = 6
    assert loop.left_s == -1
    assert loop.next_request() is None
    assert loop.stop is StopReason.MAX_SECONDS


def test_the_user_stops_it(tmp_path):
    (tmp_path / "shop.py").write_text(CODE)
    loop = AgentLoop(small(tmp_path), "Edit.", "go")
    loop.cancel()
    loop.receive(assistant_message(edit("a + b", "a - b")))
    assert loop.calls[0].tool_error == "aborted"
    assert loop.calls[0].error_class is ErrorClass.USER_ABORT
    assert loop.stop is StopReason.CANCELLED
    assert loop.edits == []


def test_a_dead_sandbox_ends_it_as_infrastructure(tmp_path):
    box, sandbox = unboxed(tmp_path)
    loop = AgentLoop(box, "Work.", "go")
    sandbox.dead = True
    loop.receive(assistant_message(call_parser.render("run", {"command": "true"})))
    assert loop.stop is StopReason.SANDBOX_DIED
    assert loop.stop in INFRASTRUCTURE
    assert loop.episode().failure


def test_self_summary_goes_on_from_what_the_model_wrote(tmp_path):
    (tmp_path / "shop.py").write_text(CODE)
    policy = SelfSummary(trigger_tokens=500, max_tokens=77, ask="Sum up.", restart="{request} | {summary}")
    loop = AgentLoop(
        small(tmp_path), "Edit.", "do {summary} it", Budget(turns=9), summary=policy, history=[HISTORY]
    )
    first = loop.next_request()
    assert len(first.messages) == 3
    loop.receive(assistant_message(READ), usage=Usage(100, 20))
    assert loop.next_request().tool_choice == ""
    loop.receive(assistant_message(READ, 1), usage=Usage(600, 20))
    asked = loop.next_request()
    assert loop.next_request() == asked, "asking twice changes nothing"
    assert asked.messages[-1] == {"role": "user", "content": "Sum up."}
    assert asked.messages[:-1] == tuple(loop.messages), "it goes on with the conversation it sums up"
    assert (asked.max_tokens, asked.tool_choice, asked.tools) == (77, "none", first.tools)
    loop.receive(assistant_message("read {request} twice" + READ, 2), usage=Usage(650, 30))
    assert len(loop.calls) == 2, "no call is run while summing up"
    request = loop.next_request()
    assert request.messages == (
        {"role": "system", "content": "Edit."},
        {"role": "user", "content": "do {summary} it | read {request} twice"},
    )
    loop.receive(assistant_message("Done.", 3), usage=Usage(50, 5))
    episode = loop.episode()
    assert episode.stop is StopReason.ANSWERED
    assert [turn.segment for turn in episode.turns] == [0, 0, 0, 1]
    assert [turn.summary for turn in episode.turns] == [False, False, True, False]
    assert [len(turn.asked) for turn in episode.turns] == [3, 0, 1, 2]
    assert (episode.prompt_tokens, episode.output_tokens) == (1400, 75)


def test_a_summary_without_words_ends_it(tmp_path):
    loop = AgentLoop(small(tmp_path), "Edit.", "go", Budget(turns=9), summary=SelfSummary(10))
    loop.receive(assistant_message(READ), usage=Usage(100, 20))
    loop.receive(assistant_message(" \n"), usage=Usage(100, 20))
    assert loop.stop is StopReason.NO_SUMMARY


def test_summaries_have_an_end(tmp_path):
    loop = AgentLoop(small(tmp_path), "Edit.", "go", Budget(turns=9), summary=SelfSummary(10, at_most=1))
    for turn, said in enumerate((READ, "sum", READ, READ)):
        assert (loop.next_request().tool_choice == "none") == (turn == 1)
        loop.receive(assistant_message(said, turn), usage=Usage(100, 20))


def test_without_told_tokens_they_are_estimated(tmp_path):
    loop = AgentLoop(small(tmp_path), "Edit.", "x" * 3000, Budget(turns=9), summary=SelfSummary(1000))
    loop.receive(assistant_message(READ))
    assert loop.next_request().tool_choice == "none"
    usage = loop.history[0].usage
    assert 1000 < usage.prompt < 1500
    assert not usage.told


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"content": 3, "tool_calls": None},
        {"content": [{"type": "text", "text": "a"}, {"type": "image"}, 3]},
        {
            "content": "\ud800",
            "tool_calls": [None, {}, {"function": 3}, {"id": 7, "function": {"name": None}}],
        },
        {"tool_calls": [{"id": "\ud800", "function": {"name": "read_file", "arguments": {"path": "x"}}}]},
        {"tool_calls": [{"function": {"name": "read_file\0", "arguments": "[" * 100_000}}]},
    ],
)
def test_whatever_a_server_answers_can_be_gone_on_with(tmp_path, message):
    loop = AgentLoop(small(tmp_path), "Edit.", "go")
    loop.receive(message)
    json.dumps(loop.messages, ensure_ascii=False).encode()
    answers = [m["tool_call_id"] for m in loop.messages if m["role"] == "tool"]
    assert answers == [call["id"] for call in loop.messages[2].get("tool_calls", [])]


def test_the_results_of_one_message_are_bounded_together(tmp_path):
    tool = Tool(define("say", "Say.", {"n": {"type": "integer"}}), lambda _, a, __: ToolResult("x" * a["n"]))
    loop = AgentLoop(Toolbox(Folder(tmp_path), (tool,)), "Go.", "all", Budget(turns=3))
    said = [call_parser.render("say", {"n": size}) for size in (30_000, 30_000, 5, 40_000)]
    loop.receive(assistant_message("".join(said)))
    assert [len(call.result) < 16_100 for call in loop.calls] == [True] * 4
    assert loop.calls[2].result == "x" * 5
    assert "[24000 characters, 0 line ends cut here]" in loop.calls[3].result
    loop.receive(assistant_message("".join(said[:2])))
    assert [len(call.result) for call in loop.calls[4:]] == [30_000, 30_000], "together they fit"
