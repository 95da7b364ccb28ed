"""Whether what a model writes will be read, told on the first day: a call and a thought of its own template.

A template writes earlier answers as the model is to write its next ones. So one is written, made tokens and
text again, and read as the gateway reads answers. Says nothing of what a template does not show: thoughts of
earlier answers, calls behind a condition. Not for: the reading itself (`model_forms.py`,
`cursorbench/harness`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cursorbench.harness import call_parser
from cursorbench.harness.thoughts import CLOSE, OPEN, PAIRS
from cursorbench.pretrained import tokenizer_of
from stages.model_forms import forms_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TOOL, _PATH, _THOUGHT = "look_zebra_up", "walrus.py", "Perhaps a walrus."
_PARAMETERS = {"type": "object", "properties": {"path": {"type": "string", "description": "Which."}}}
_TOOLS = [
    {"type": "function", "function": {"name": _TOOL, "description": "Look.", "parameters": _PARAMETERS}}
]
_SYSTEM = {"role": "system", "content": "You look things up."}
_USER = {"role": "user", "content": "Look it up."}
_THINKS = dict.fromkeys(("reasoning_content", "reasoning", "thinking"), _THOUGHT)
_CALL = {"id": "abcdefgh1", "type": "function", "function": {"name": _TOOL, "arguments": {"path": _PATH}}}
_CALLS = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_RESULT = {"role": "tool", "tool_call_id": "abcdefgh1", "name": _TOOL, "content": "None."}
_NO_TOOLS = "its chat template shows it no tools: agents that call some cannot use it (docs/http.md, Tools)"
_FAILS = "its chat template fails where there are tools or calls: such requests get 400 (docs/http.md, Tools)"
_NO_SYSTEM = "its chat template fails where there is a system message: what agents ask gets 400"
_UNREAD_CALLS = "its calls are of a form that is not read: agents get them as text (docs/http.md, Tools)"
_UNREAD_THOUGHTS = (
    "its thoughts are taken for its answers: <think> and </think> are not around them, or no tokens "
    "(docs/http.md, Thoughts)"
)


def unread(folder: Path) -> tuple[str, ...]:
    """What of this model's answers clients will not get as they should; () for nothing known."""
    try:
        tokenizer = tokenizer_of(folder)
    except Exception:  # noqa: BLE001 - whatever transformers makes of a stranger's files: others say so
        return ()
    if not tokenizer.chat_template:
        return ()
    told = (_UNREAD_THOUGHTS,) if _hides_thoughts(tokenizer, folder) else ()
    asked = _rendered(tokenizer, [_USER], begins=True)
    if asked is not None and _rendered(tokenizer, [_SYSTEM, _USER], begins=True) is None:
        told = (_NO_SYSTEM, *told)
    if asked is None or _TOOL not in asked:
        return (_NO_TOOLS if asked is not None else _FAILS, *told)
    called = _rendered(tokenizer, [_USER, _CALLS, _RESULT], begins=False)
    if called is None:
        return (_FAILS, *told)
    return (_UNREAD_CALLS, *told) if _hides_calls(tokenizer, folder, called) else told


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: list[Any], *, begins: bool) -> str | None:
    try:
        return str(
            tokenizer.apply_chat_template(
                messages,
                tools=_TOOLS,
                tokenize=False,
                add_generation_prompt=begins,
                enable_thinking=True,
                thinking=True,
            )
        )
    except Exception:  # noqa: BLE001 - templates are programs, and raise what they like
        return None


def _told(tokenizer: PreTrainedTokenizerBase, folder: Path, text: str) -> str:
    """The text as engines are asked to tell it: without special tokens, where none of them is read."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    return str(tokenizer.decode(ids, skip_special_tokens=not forms_of(folder).hidden))


def _hides_calls(tokenizer: PreTrainedTokenizerBase, folder: Path, whole: str) -> bool:
    before, path, behind = whole.rpartition(_PATH)
    if not path:
        return False
    if tokenizer.eos_token:  # it ends an answer, and is in no text of one
        behind = behind.partition(tokenizer.eos_token)[0]
    told = _told(tokenizer, folder, before + path + behind)
    calls = call_parser.parse(told, {_TOOL: _PARAMETERS}, forms_of(folder).blocks).valid
    return not any(call.name == _TOOL and json.loads(call.arguments) == {"path": _PATH} for call in calls)


def _hides_thoughts(tokenizer: PreTrainedTokenizerBase, folder: Path) -> bool:
    asked = _rendered(tokenizer, [_USER], begins=True) or ""
    if asked.rstrip().endswith(OPEN):
        ids = tokenizer.encode(asked, add_special_tokens=False)
        return not forms_of(folder).begins_within(ids) or CLOSE not in _told(tokenizer, folder, CLOSE)
    whole = _rendered(tokenizer, [_USER, {**_CALLS, **_THINKS}, _RESULT], begins=False) or ""
    before, thought, behind = _told(tokenizer, folder, whole).partition(_THOUGHT)
    return bool(thought) and not any(
        before.rstrip().endswith(tag) and behind.lstrip().startswith(end) for tag, end in PAIRS.items()
    )
