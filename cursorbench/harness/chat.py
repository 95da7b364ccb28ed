"""Messages between harness and model: what is asked, and an answer in the one form the harness goes on with.

Whatever serves the model, an answer is an OpenAI assistant message whose calls have ids and JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cursorbench.harness import call_parser
from cursorbench.harness.call_blocks import ANY, Block
from cursorbench.harness.episode import Message
from cursorbench.harness.results import printable
from cursorbench.harness.thoughts import apart


@dataclass(frozen=True)
class ChatRequest:
    """What is asked of the model: the fields of a chat completion that the harness decides.

    Attributes:
        temperature: of sampling; None leaves it to who serves.
        tool_choice: "none" where a call would be out of place; "" leaves it out.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]
    max_tokens: int
    temperature: float | None = None
    tool_choice: str = ""

    def plain(self) -> ChatRequest:
        """The same of one character in the same conversation's beginning: refused, no request is taken."""
        return replace(self, messages=(self.messages[0], {"role": "user", "content": "."}))

    def body(self, model: str) -> dict[str, Any]:
        """The JSON body of `POST /v1/chat/completions`."""
        body = {
            "model": model,
            "messages": list(self.messages),
            "tools": list(self.tools),
            "max_tokens": self.max_tokens,
        }
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.tool_choice and self.tools:
            body["tool_choice"] = self.tool_choice
        return body


def assistant_message(
    text: str,
    turn: int = 0,
    tools: Sequence[call_parser.Tool] = (),
    blocks: Sequence[Block] = ANY,
    *,
    begun: bool = False,
) -> Message:
    """The OpenAI message for what a model wrote, as the gateway makes it; for engines called in process.

    `blocks`: those of calls that the model writes; `begun`: whether the prompt ended within a thought.
    """
    functions = [tool["function"] for tool in tools]
    thought, said = apart(text, begun=begun)
    parsed = call_parser.parse(said, {each["name"]: each.get("parameters") for each in functions}, blocks)
    message: Message = {"role": "assistant", "content": parsed.content or None}
    if thought:
        message["reasoning_content"] = thought
    if parsed.valid:
        message["tool_calls"] = [
            {
                "id": f"call_{turn}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(parsed.valid)
        ]
    return message


def whole(message: Mapping[str, Any], turn: int) -> Message:
    """The answer as it stays in the conversation; what a server left out or bent is made whole."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    answer: Message = {"role": "assistant", "content": printable(str(content))}
    if isinstance(thought := message.get("reasoning_content") or message.get("reasoning"), str):
        answer["reasoning_content"] = printable(thought)  # templates show a model its own of this turn
    given = message.get("tool_calls")
    given = given if isinstance(given, list | tuple) else []
    calls = [_call(call, f"call_{turn}_{index}") for index, call in enumerate(given)]
    if calls:
        answer["tool_calls"] = calls
    return answer


def said_in(answer: Mapping[str, Any]) -> str:
    """The text of a model's answer, also where who serves it leaves thoughts in that."""
    content = str(answer.get("content") or "")
    return content if answer.get("reasoning_content") else apart(content, begun=None).said


def objects(value: object) -> list[dict[str, Any]]:
    """The JSON objects in a list; none in what is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _call(call: object, fallback: str) -> dict[str, Any]:
    given = call if isinstance(call, dict) else {}
    function = given.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments", "")
    return {
        "id": printable(str(given.get("id") or fallback)),
        "type": "function",
        "function": {
            "name": printable(str(function.get("name") or "")),
            "arguments": printable(arguments if isinstance(arguments, str) else json.dumps(arguments)),
        },
    }
