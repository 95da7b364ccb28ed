"""What a new model's own template tells of the answers that will not be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from stages.template_outlook import _FAILS, _NO_SYSTEM, _NO_TOOLS, _UNREAD_CALLS, _UNREAD_THOUGHTS, unread

HEAD = "{% for tool in tools %}{{ tool.function | tojson }}\n{% endfor %}"
EACH = (
    "{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}THOUGHT{% endif %}{{ m.content }}"
    "{% for call in m.tool_calls %}CALL{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]BEGIN{% endif %}"
)
JSON = '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
HERMES = f"<tool_call>\n{JSON}\n</tool_call>"
MISTRAL = "[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}"
OTHERS = f"<|call|>{JSON}<|end|>"
THINK = "<think>\n{{ m.reasoning_content }}\n</think>\n\n"
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


def model(folder: Path, template: str, plain: tuple[str, ...], special: tuple[str, ...]) -> Path:
    """A folder with a tokenizer of bytes, and of tags that are tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    tokens.add_tokens([AddedToken(tag, normalized=False) for tag in plain])
    tokens.add_special_tokens([AddedToken(tag, normalized=False) for tag in special])
    made = PreTrainedTokenizerFast(tokenizer_object=tokens)
    made.chat_template = template
    made.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("call", "thought", "begin", "special", "said"),
    [
        (HERMES, THINK, "", (), ()),
        (HERMES, "", "<think>\n", (), ()),
        (OTHERS, THINK, "<think>\n", (), (_UNREAD_CALLS,)),
        (HERMES, "<|thinks|>{{ m.reasoning_content }}<|says|>", "", (), (_UNREAD_THOUGHTS,)),
        (HERMES, "", "<think>\n", TAGS[2:], ()),  # engines show special tokens where tags are among them
        (HERMES, THINK, "", TAGS[:2], ()),
        (MISTRAL, "[THINK]{{ m.reasoning_content }}[/THINK]", "", ("[TOOL_CALLS]", "[ARGS]", "[THINK]"), ()),
        (HERMES, "", "<think>\n", TAGS[:2], ()),
        (HERMES, "", "<think>\n", None, (_UNREAD_THOUGHTS,)),  # no token of it: not seen in a prompt's ids
    ],
)
def test_what_of_a_models_answers_is_not_read(
    tmp_path: Path, call: str, thought: str, begin: str, special: tuple[str, ...] | None, said: object
) -> None:
    each = EACH.replace("CALL", call).replace("THOUGHT", thought).replace("BEGIN", begin)
    plain = () if special is None else tuple(tag for tag in TAGS if tag not in special)
    assert unread(model(tmp_path, HEAD + each, plain, special or ())) == said


def test_the_token_that_ends_an_answer_is_no_part_of_its_calls(tmp_path: Path) -> None:
    """Granite's calls have no closing tag; engines give answers without the token behind them."""
    call = f"<|tool_call|>[{JSON}]<|end_of_text|>"
    folder = model(tmp_path, HEAD + EACH.replace("CALL", call), (), ("<|tool_call|>", "<|end_of_text|>"))
    assert unread(folder) == (_UNREAD_CALLS,)
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"eos_token": "<|end_of_text|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert unread(folder) == ()


def test_a_template_that_refuses_a_system_message_is_said(tmp_path: Path) -> None:
    refuses = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    )
    folder = model(tmp_path, HEAD + refuses + EACH.replace("CALL", HERMES), (), ())
    assert unread(folder) == (_NO_SYSTEM,)


def test_where_calls_cannot_be_told(tmp_path: Path) -> None:
    assert unread(model(tmp_path / "a", "{{ raise_exception('none') }}", (), ())) == (_FAILS,)
    assert unread(model(tmp_path / "b", "{% for m in messages %}{{ m.content }}{% endfor %}", (), ())) == (
        _NO_TOOLS,
    )
    assert unread(tmp_path) == ()
