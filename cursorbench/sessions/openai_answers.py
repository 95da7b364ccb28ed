"""The answer in a logged response: chat completion, Responses, Anthropic's message, chunks or bare text.

For `openai_log`. Only the first choice is read: the others were not the answer. Not for: tokens, logprobs.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from cursorbench.harness import sse
from cursorbench.sessions.chat import Answer, Message, message_of
from cursorbench.sessions.reading import list_of, parsed, table_of, text_of
from cursorbench.sessions.records import first_text

_BEGINS = "message_start"  # the first event of a stream of Anthropic's


def answer_of(response: object) -> Answer | None:
    """The answer; None where the response has none (an error, an embedding, nothing at all)."""
    if isinstance(response, str):
        return Answer(message=Message("assistant", text=response)) if response else None
    if isinstance(response, list):
        return _of_chunks([one for one in response if isinstance(one, dict)])
    told = table_of(response)
    message, parts = _message(told), _items(told)
    if message is None:
        return None
    return Answer(
        message=message,
        parts=parts if len(parts) > 1 else [],
        id=text_of(told.get("id")),
        model=text_of(told.get("model")),
    )


def chunks_of(body: str) -> list[Any]:
    """The chunks of a stream that was logged as it came, as server-sent events; none of any other text."""
    if not body.lstrip().startswith(("data:", "event:", ":")):
        return []
    return [parsed(data.encode(errors="replace")) for data in sse.data_of(body) if data.startswith("{")]


def _message(response: dict[str, Any]) -> Message | None:
    choice = _first(response.get("choices"))
    if choice:
        message = table_of(choice.get("message"))
        if message:
            return message_of({"role": "assistant", **message})
        text = choice.get("text")
        return Message("assistant", text=text) if isinstance(text, str) else None
    if isinstance(response.get("output"), list):
        return _of_output(_items(response))
    if text_of(response.get("role")) == "assistant":
        return message_of(response)
    content = response.get("content")
    return Message("assistant", text=content) if isinstance(content, str) and content else None


def _items(response: dict[str, Any]) -> list[Message]:
    """The items of a Responses answer."""
    return [found for one in list_of(response.get("output")) if (found := message_of(one)) is not None]


def _of_output(found: list[Message]) -> Message | None:
    """The items of a Responses answer as one message."""
    if not found:
        return None
    whole = Message("assistant")
    for one in found:
        whole.text = "\n".join(filter(None, [whole.text, one.text]))
        whole.thinking = "\n".join(filter(None, [whole.thinking, one.thinking]))
        whole.calls = [*whole.calls, *one.calls]
        whole.results = [*whole.results, *one.results]
    return whole


def is_stream(chunks: list[Any]) -> bool:
    """Whether a list is what a stream sent, and no list of what was answered."""
    tables = [one for one in chunks if isinstance(one, dict)]
    kinds = [text_of(one.get("type")) for one in tables]
    return any("choices" in one for one in tables) or any(map(_is_event, kinds))


def _is_event(kind: str) -> bool:
    """Whether a stream's event of this type is of the Responses API, or of Anthropic's."""
    return kind.startswith("response.") or kind == _BEGINS


def _of_chunks(chunks: list[dict[str, Any]]) -> Answer | None:
    """The message that the chunks of a stream add up to."""
    if any(chunk.get("type") == _BEGINS for chunk in chunks):
        return answer_of(_of_anthropic(chunks))
    if any(text_of(chunk.get("type")).startswith("response.") for chunk in chunks):
        return answer_of(_of_events(chunks))
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    places: dict[object, int] = {}
    message: dict[str, Any] = {"role": "assistant"}
    thinking: list[str] = []
    for chunk in chunks:
        choice = _first(chunk.get("choices"))
        delta = table_of(choice.get("delta"))
        texts.append(first_text(delta, "content", "refusal") or text_of(choice.get("text")))
        thinking.append(text_of(delta.get("reasoning_content")) or text_of(delta.get("reasoning")))
        for part in map(table_of, list_of(delta.get("tool_calls"))):
            _add(calls, places, part)
        if isinstance(older := delta.get("function_call"), dict):
            _add(calls, places, {"id": older.get("name"), "index": 0, "function": older})
    if not any(texts) and not any(thinking) and not calls:
        return None
    message |= {"content": "".join(texts), "reasoning": "".join(thinking), "tool_calls": calls}
    first = next((chunk for chunk in chunks if text_of(chunk.get("id"))), {})
    return Answer(message=message_of(message), id=text_of(first.get("id")), model=text_of(first.get("model")))


def _of_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer of a stream of Responses: its last event's, or so much as came before a cut."""
    told = [found for event in events if (found := table_of(event.get("response")))]
    if told and told[-1].get("output"):
        return told[-1]
    items: dict[int, dict[str, Any]] = {}
    deltas: defaultdict[int, list[str]] = defaultdict(list)
    for event in events:
        kind, place = text_of(event.get("type")), event.get("output_index")
        place = place if isinstance(place, int) else 0
        if kind in ("response.output_item.added", "response.output_item.done"):
            items[place] = table_of(event.get("item"))
        elif kind == "response.output_text.delta":
            deltas[place].append(text_of(event.get("delta")))
    for place, pieces in deltas.items():
        item = items.setdefault(place, {"type": "message", "role": "assistant"})
        item["content"] = item.get("content") or [{"text": "".join(pieces)}]
    return {**(told[-1] if told else {}), "output": [one for _, one in sorted(items.items())]}


def _of_anthropic(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message of a stream of Anthropic's, whose blocks come in pieces; so much as came before a cut."""
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    pieces: defaultdict[int, list[str]] = defaultdict(list)
    for event in events:
        kind, place = event.get("type"), event.get("index")
        place = place if isinstance(place, int) else 0
        if kind == _BEGINS:
            message = table_of(event.get("message"))
        elif kind == "content_block_start":
            blocks[place] = dict(table_of(event.get("content_block")))
        elif kind == "content_block_delta":
            pieces[place].append(first_text(table_of(event.get("delta")), "text", "thinking", "partial_json"))
    for place, parts in pieces.items():
        block = blocks.setdefault(place, {"type": "text"})
        name = "input" if "input" in block else text_of(block.get("type"))
        block[name] = "".join(parts) or block.get(name)
    return {**message, "content": [block for _, block in sorted(blocks.items())]}


def _add(calls: list[dict[str, Any]], places: dict[object, int], part: dict[str, Any]) -> None:
    """Adds a piece to its call. `places`: where the call of an index stands among `calls`.

    Gemini's pieces have no index, or 0 in all calls: a piece with another id and a name begins another call.
    (vLLM gave every piece an id of its own, but only the first one a name.)
    """
    index = at if isinstance(at := part.get("index"), int) else None
    function = table_of(part.get("function"))
    one, name = text_of(part.get("id")), text_of(function.get("name"))
    at = places.get(index, -1 if name or index is not None else len(calls) - 1)
    if at < 0 or (name and calls[at]["name"] and (one != calls[at]["id"] if one else index is None)):
        at = places[index] = len(calls)
        calls.append({"id": "", "name": "", "arguments": ""})
    call = calls[at]
    call["id"], call["name"] = call["id"] or one, call["name"] or name
    call["arguments"] += text_of(function.get("arguments"))


def _first(choices: object) -> dict[str, Any]:
    """The choice of index 0, which a stream may tell among others."""
    found = [one for one in list_of(choices) if isinstance(one, dict)]
    return next((one for one in found if one.get("index", 0) == 0), {})
