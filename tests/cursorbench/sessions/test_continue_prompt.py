"""What a person wrote in a prompt that Continue logged: models' templates, named files; paths as URIs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.items import Edit, Read, UserTurn

BASE = {"timestamp": "2026-01-25T10:00:00.000Z", "userAgent": "VSCode", "selectedProfileId": "local"}
RULES = "<important_rules>\n  You are in chat mode.\n</important_rules>"


def read(tmp_path: Path, *events: dict[str, Any]) -> list[Read]:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({**BASE, **one}) + "\n" for one in events))
    return [item for _, item in kinds.read(path)]


def said(tmp_path: Path, prompt: str) -> list[tuple[str, str]]:
    event = {"eventName": "chatInteraction", "sessionId": "s", "prompt": prompt, "completion": "sure"}
    return [(one.automatic, one.text) for one in read(tmp_path, event) if isinstance(one, UserTurn)]


@pytest.mark.parametrize(
    "prompt",
    [
        "Be kind.\n### Instruction:\nfirst\n### Response:\nok<|EOT|>\n### Instruction:\nno\n### Response:\n",
        "<|im_start|>user\nfirst<|im_end|>\n<|im_start|>assistant\nok<|im_end|>\n<|im_start|>user\nno<|im_end|>\n"
        "<|im_start|>assistant\n",
        "<|start_header_id|>user<|end_header_id|>\nno<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n",
        "<start_of_turn>user\nno<end_of_turn>\n<start_of_turn>model\n",
        "<|system|> </s>\n<|user|>\nfirst</s>\n<|assistant|>\nok</s>\n<|user|>\nno</s>\n<|assistant|>\n",
        "### User Message\nno\n### Assistant\n",
        "### System:\nBe kind.\n### User:\nno\n### Assistant:\n",
        "GPT4 Correct User: no<|end_of_turn|>GPT4 Correct Assistant: ",
        "<s>Source: user\n\n no <step> Source: assistant\nDestination: user\n\n ",
        "\n\nHuman: first \n\nAssistant: ok \n\nHuman: no \n\nAssistant:",
        "<system>: Be kind.\n<user>: no\n<AI>: ",
        "<s>[INST] <<SYS>>\n Be kind.\n<</SYS>>\n\n no [/INST]",
        "<s>[INST] <<SYS>>\n Be kind.\n<</SYS>>\n\n first [/INST]ok</s>\n<s>[INST] no [/INST]\n",
    ],
)
def test_the_last_message_of_a_prompt_in_a_models_template(tmp_path: Path, prompt: str) -> None:
    assert said(tmp_path, prompt) == [("", "no")]


@pytest.mark.parametrize(
    "text",
    ["what does ### Instruction:\nmean?", "### Response:\n", "why [INST] here?", "compare ### User:\n and x"],
)
def test_a_message_that_only_speaks_of_a_template_is_whole(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, f"<user>\n{text}\n\n") == [("", text.strip())]
    assert said(tmp_path, text) == [("", text.strip())]


def test_rules_that_continue_puts_before_the_words(tmp_path: Path) -> None:
    prompt = f"Be kind.\n### Instruction:\n{RULES}\nno\n### Response:\n"
    assert said(tmp_path, prompt) == [("meta", RULES), ("", "no")]


def test_files_that_a_person_named_are_not_their_words(tmp_path: Path) -> None:
    page = "```docs/guide.md\n# Guide\n```bash\nls\n```\nend\n\n```"
    lines = "```py a.py (4-5)\nx = 1\n```"
    assert said(tmp_path, f"<user>\n{page}\n\n{lines}\n\nshorten this guide.md\n\n") == [
        ("meta", f"{page}\n\n{lines}"),
        ("", "shorten this guide.md"),
    ]


@pytest.mark.parametrize(
    "text", ["```python\nx = 1\n```\nwhy?", "see ```a.py\nx\n```", "```a.py\nnever closed"]
)
def test_code_that_a_person_pasted_is_theirs(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, f"<user>\n{text}\n\n") == [("", text)]


def test_a_request_to_edit_with_the_lines_that_were_selected(tmp_path: Path) -> None:
    lines = "```py a.py (48-53)\nx = 1\n```"
    event = {"eventName": "editInteraction", "modelProvider": "p", "modelName": "m", "filepath": "a.py"}
    items = read(tmp_path, {**event, "prompt": f"\n{lines}\n\nshorter", "completion": "y"})
    turns = [(one.automatic, one.text) for one in items if isinstance(one, UserTurn)]
    assert turns == [("meta", lines), ("", "shorter")]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("file:///c%3A/www/shop/a%20b.py", "c:/www/shop/a b.py"),
        ("file:///home/u/shop/a.py", "/home/u/shop/a.py"),
        ("vscode-remote://dev-container%2B7b22/workspaces/shop/a.py", "/workspaces/shop/a.py"),
        ("src/100%25.py", "src/100%25.py"),
        ("C:\\shop\\a.py", "C:\\shop\\a.py"),
    ],
)
def test_paths_that_are_uris(tmp_path: Path, name: str, path: str) -> None:
    event = {
        "eventName": "editOutcome",
        "filepath": name,
        "accepted": True,
        "newCode": "x",
        "previousCode": "y",
    }
    assert [one.path for one in read(tmp_path, event) if isinstance(one, Edit)] == [path]


def test_an_answer_that_edits_a_file_twice_made_two_edits(tmp_path: Path) -> None:
    event = {
        "eventName": "editOutcome",
        "filepath": "a.py",
        "accepted": True,
        "prompt": "fix",
        "completion": "",
    }
    first = {**event, "previousCode": "a", "newCode": "b"}
    second = {**event, "previousCode": "b", "newCode": "c"}
    edits = [one for one in read(tmp_path, first, second, first) if isinstance(one, Edit)]
    assert [(one.before, one.after) for one in edits] == [("a", "b"), ("b", "c")]
    assert len({one.id for one in edits}) == 2


@pytest.mark.parametrize(
    "text",
    [
        "```" + "." * 300_000,
        "```a.py\n```" + "b" * 300_000 + "`",
        "```" + "a " * 200_000,
        " " * 300_000 + "[INST] " * 50_000 + "<<SYS>>" * 50_000 + "[/INST]",
    ],
)
def test_long_texts_take_no_longer_than_they_are(tmp_path: Path, text: str) -> None:
    """Each took minutes with expressions that go back."""
    assert said(tmp_path, text)
