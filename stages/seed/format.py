"""The seed model's chat format: special tokens, chat template, and the same rendering as plain strings.

The template is what engines use; `render` gives the same text a hundred times faster for making
demonstrations (a test holds the two together). Terse: tools are rendered by name only, because a
model of a million parameters reads 100 tokens and not 1,000.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

PAD, END = "<|pad|>", "<|end|>"
SYSTEM, USER, ASSISTANT, TOOL = "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"
SPECIAL_TOKENS = (PAD, END, SYSTEM, USER, ASSISTANT, TOOL)

# Whole pieces of a tool call: text like any other, but one token each.
CALL_PIECES = (
    "<tool_call>",
    "</tool_call>",
    '{"name": "',
    '", "arguments": {"',
    'path": "',
    '", "old": "',
    '", "new": "',
    'text": "',
    'command": "',
    '"}}',
    "read_file",
    "edit_file",
    r"\n    ",  # a line's end as a JSON string has it, with the indentation after it
    r"\n        ",
)

CHAT_TEMPLATE = """\
{%- if messages[0]['role'] != 'system' and tools -%}
<|system|> Tools:{% for tool in tools %} {{ tool['function']['name'] }}{% endfor %}<|end|>
{%- endif -%}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}
<|system|>{{ message['content'] }}{% if tools and loop.first %} Tools:{% for tool in tools %} \
{{ tool['function']['name'] }}{% endfor %}{% endif %}<|end|>
{%- elif message['role'] == 'assistant' -%}
<|assistant|>{{ message['content'] or '' }}
{%- for call in message['tool_calls'] or [] -%}
{%- set arguments = call['function']['arguments'] -%}
{{ '<tool_call>{"name": ' }}{{ call['function']['name'] | tojson }}{{ ', "arguments": ' }}\
{{ arguments if arguments is string else arguments | tojson }}{{ '}</tool_call>' }}
{%- endfor -%}
<|end|>
{%- else -%}
{{ '<|tool|>' if message['role'] == 'tool' else '<|user|>' }}{{ message['content'] }}<|end|>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}
"""


def render_call(name: str, arguments: Mapping[str, Any]) -> str:
    """A tool call as the model should write it."""
    raw = json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>{{"name": {json.dumps(name)}, "arguments": {raw}}}</tool_call>'


def render_system(system: str, tools: Sequence[Mapping[str, Any]]) -> str:
    """The first message, with the tools' names."""
    names = "".join(f" {tool['function']['name']}" for tool in tools)
    return f"{SYSTEM}{system}{f' Tools:{names}' if names else ''}{END}"
