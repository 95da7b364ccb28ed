"""The shipped seed model: small, as its recipe says, and its template equal to the plain rendering."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

import pytest

from cursorbench.harness import call_parser
from cursorbench.harness.tools import DEFAULT_TOOLS
from evals.population.people import SYSTEM, day_of
from stages.init import seed_folder
from stages.seed.branches import collate, hidden_states
from stages.seed.corpus import beginning, branch, make_row
from stages.seed.demonstrations import Manner
from stages.seed.format import ASSISTANT, END, SPECIAL_TOKENS, TOOL, USER, render_system
from stages.seed.pretrain import Recipe

FOLDER = seed_folder()
CASES = [case for cases in day_of("train", 6, 20, 60) for case in cases]


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(FOLDER)


def test_it_is_the_one_of_the_recipe():
    recipe = json.loads((FOLDER / "recipe.json").read_bytes())
    assert set(recipe["sha256"]) == {path.name for path in FOLDER.iterdir()} - {"recipe.json"}
    for name, digest in recipe["sha256"].items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest
    made_now = json.loads(json.dumps(asdict(Recipe())))
    assert made_now == recipe["recipe"], "scripts/make_seed.py would make another one"


def test_every_token_has_an_embedding(tokenizer):
    """transformers' Qwen2 class adds `<|endoftext|>` where no unk_token is named; one ended the engine."""
    rows = json.loads((FOLDER / "config.json").read_bytes())["vocab_size"]
    assert max(tokenizer.get_vocab().values()) == rows - 1
    assert len(tokenizer) == rows


def test_it_is_small_and_untied():
    assert (FOLDER / "model.safetensors").stat().st_size <= 4_000_000
    config = json.loads((FOLDER / "config.json").read_bytes())
    assert config["tie_word_embeddings"] is False
    assert config["architectures"] == ["Qwen2ForCausalLM"]


def test_the_template_renders_what_was_trained_on(tokenizer):
    arguments = {"path": "a.py", "old": "f(a):\n    return a", "new": 'é "x"'}
    call = {"type": "function", "function": {"name": "edit_file", "arguments": arguments}}
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "a.py\nx\n\nfix it"},
        {"role": "assistant", "content": "On it. ", "tool_calls": [call, call]},
        {"role": "tool", "content": "ok", "tool_call_id": "1"},
        {"role": "tool", "content": "error", "tool_call_id": "2"},
    ]
    text = tokenizer.apply_chat_template(
        messages, tools=list(DEFAULT_TOOLS), tokenize=False, add_generation_prompt=True
    )
    rendered = call_parser.render("edit_file", arguments)
    assert text == (
        f"{render_system(SYSTEM, DEFAULT_TOOLS)}{USER}a.py\nx\n\nfix it{END}"
        f"{ASSISTANT}On it. {rendered}{rendered}{END}{TOOL}ok{END}{TOOL}error{END}{ASSISTANT}"
    )


def test_tokens_give_the_text_back_and_prompts_are_short(tokenizer):
    lengths = []
    for case in CASES:
        prompt = render_system(SYSTEM, DEFAULT_TOOLS) + USER + case.text + END + ASSISTANT
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        lengths.append(len(ids))
        assert tokenizer.decode(ids, skip_special_tokens=False) == prompt
    assert sum(lengths) / len(lengths) < 110
    call = call_parser.render("edit_file", {"path": "a.py", "old": "f(a):\n    x", "new": "y"})
    shown = tokenizer.decode(tokenizer(call + END)["input_ids"], skip_special_tokens=True)
    assert shown == call
    assert set(SPECIAL_TOKENS) <= set(tokenizer.get_vocab())


def test_every_reader_of_the_folder_sees_the_tokens_that_were_trained_on(tokenizer):
    """transformers gives the folder Qwen2's text splitting, tokenizers the file's, training its pieces'."""
    from random import Random

    from tokenizers import Tokenizer

    file = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    for case in CASES:
        parts = [beginning(case), *(text for text, _ in branch(case, Manner(), Random(case.id)))]
        apart = [number for part in parts for number in file.encode(part).ids]
        whole = "".join(parts)
        assert file.encode(whole).ids == tokenizer(whole, add_special_tokens=False)["input_ids"] == apart


def test_shared_beginnings_mean_what_separate_sequences_mean(tokenizer):
    import torch

    from stages.modelio import load_model

    model = load_model(FOLDER)

    def encode(texts):
        return tokenizer(texts, add_special_tokens=False)["input_ids"]

    from random import Random

    rows = [make_row(Random(seed), 3, Manner(), encode) for seed in (1, 2)]
    batch = collate(rows)
    with torch.no_grad():
        weights = {name: value.bfloat16() for name, value in model.named_parameters()}
        hidden = hidden_states(model, weights, batch)[:, batch.beginning.shape[1] :]
        hidden = hidden.view(*batch.branches.shape, -1).float()
        for i, row in enumerate(rows):
            for k, ids in enumerate(row.branches):
                whole = torch.tensor([row.beginning + ids])
                alone = model.model(whole).last_hidden_state[0, len(row.beginning) :]
                together = hidden[i, k, : len(ids)]
                assert torch.nn.functional.cosine_similarity(alone, together, dim=-1).min() > 0.99


def test_the_prompt_is_the_one_it_was_trained_on(tokenizer):
    """A tool renamed or a word changed is another language to it: then a new seed model must be made."""
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "a.py\nx = 1\n\nset x to 2"},
    ]
    text = tokenizer.apply_chat_template(
        messages, tools=list(DEFAULT_TOOLS), tokenize=False, add_generation_prompt=True
    )
    digests = [hashlib.sha256(one.encode()).hexdigest()[:16] for one in (text, json.dumps(DEFAULT_TOOLS))]
    assert digests == ["0b5eea4b8bdbea41", "f5e588b21cb34c3c"]
