"""Inferences of TensorZero as its gateway stores them: rows of its tables, or of its API. For `exports`.

What its feedback is about: an inference by its id, an episode by its own. Not for: feedback
(`tensorzero.py`), data sets, which are no answers anybody was given.

Source: tensorzero/tensorzero (`docs/gateway/data-model.mdx`, `stored_inference.rs`).
"""

from __future__ import annotations

from typing import Any

from cursorbench.sessions.reading import json_value, list_of, table_of, text_of
from cursorbench.sessions.records import first_text, json_text

FIELDS = {"function_name", "variant_name", "episode_id", "input", "output"}


def call(row: dict[str, Any]) -> dict[str, Any]:
    """An inference as a logged request; its model is called as in answers of the gateway's OpenAI API."""
    asked, given = table_of(json_value(row["input"])), json_value(row["output"])
    system = asked.get("system")
    said = [{"role": "system", "content": json_text(system)}] if system else []
    said += [_message(one) for one in map(table_of, list_of(asked.get("messages")))]
    names = text_of(row["function_name"]), text_of(row["variant_name"])
    answer = {
        "id": first_text(row, "inference_id", "id"),
        "episode_id": row["episode_id"],
        "model": "tensorzero::function_name::{}::variant_name::{}".format(*names),
        **_message({"role": "assistant", "content": given}),
    }
    about = {"timestamp": row.get("timestamp"), "duration_ms": row.get("processing_time_ms")}
    return {"request": {"messages": said}, "response": answer, **about}


def _message(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, dict):  # of a function that answers in JSON
        content = text_of(content.get("raw"))
    if isinstance(content, list):
        content = [_block(table_of(one)) for one in content]
    return {"role": message.get("role"), "content": content}


def _block(block: dict[str, Any]) -> dict[str, Any]:
    """A block as `chat` knows it; of a call that did not parse what the model wrote."""
    match block.get("type"):
        case "tool_call":
            name = first_text(block, "name", "raw_name")
            given = block.get("arguments")
            return {
                **block,
                "name": name,
                "arguments": block.get("raw_arguments") if given is None else given,
            }
        case "thought":
            return {"type": "thinking", "thinking": text_of(block.get("text"))}
        case "text" | "template" | "raw_text":
            told = (block.get(name) for name in ("text", "arguments", "value"))
            return {"type": "text", "text": json_text(next((one for one in told if one is not None), ""))}
    return block
