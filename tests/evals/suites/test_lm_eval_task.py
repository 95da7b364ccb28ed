"""The local lm-eval task, through the real harness, on a small random checkpoint."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

from cursorbench.errors import IntegrityError, UsageError
from evals.suites.base import Subject
from evals.suites.lm_eval_task import LmEvalSuite
from evals.suites.tasks import snippets

ROOT = Path(__file__).parents[3]


def checkpoint(folder: Path, scale: float = 1.0) -> Path:
    """A random Qwen2 model with a byte-level tokenizer. `scale` nan makes its weights useless."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate([*alphabet, "<end>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", model_max_length=512
    ).save_pretrained(folder)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(vocabulary),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=512,
            tie_word_embeddings=False,
        )
    )
    with torch.no_grad():
        model.lm_head.weight.mul_(scale)
    model.save_pretrained(folder)
    return folder


def no_chat(requests: object) -> list[dict[str, object]]:
    raise AssertionError("a likelihood task asks no questions")


def subject(folder: Path) -> Subject:
    return Subject("sha256:" + "0" * 64, folder, no_chat)


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("model"))


def test_documents_are_what_their_script_makes() -> None:
    spec = importlib.util.spec_from_file_location("make_snippets", ROOT / "scripts" / "make_snippets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = snippets.FILE.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == module.documents()
    for document in module.documents():
        assert len(set(document["choices"])) == len(document["choices"])
        right = document["choices"][document["answer"]]
        wrong = [choice for choice in document["choices"] if choice != right]
        assert right in document["context"]
        words = document["context"].replace("(", " ").replace(")", " ").replace(",", " ").split()
        assert not set(wrong) & set(words), "a wrong choice stands in the code"


def test_scores_by_document_and_repeats_itself(random_model: Path) -> None:
    suite = LmEvalSuite("rtrl_snippets", name="snippets", limit=40)
    assert suite.spec.name == "snippets"
    assert [metric.name for metric in suite.spec.metrics] == ["acc"]
    assert suite.spec.metrics[0].span is None  # likelihoods do not change from one time to the next
    done: list[int] = []
    every = suite.run(subject(random_model), suite.cases(), done.append)
    assert [one.case for one in every] == list(suite.cases())
    assert sum(done) == 40
    assert 0.05 < sum(one.values["acc"][0] for one in every) / 40 < 0.6  # chance is a quarter
    some = suite.run(subject(random_model), list(suite.cases())[3:9], done.append)
    assert [(one.case, one.values) for one in some] == [(one.case, one.values) for one in every[3:9]]


def test_outside_a_clone_git_says_nothing(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = LmEvalSuite("rtrl_snippets", limit=1)
    suite.run(subject(random_model), suite.cases(), lambda n: None)
    assert "git" not in capfd.readouterr().err
    os.write(2, b"heard again")
    assert capfd.readouterr().err == "heard again"


def test_a_limit_takes_the_first_documents() -> None:
    whole, part = LmEvalSuite("rtrl_snippets"), LmEvalSuite("rtrl_snippets", limit=10)
    assert len(whole.cases()) == 240
    assert part.cases() == whole.cases()[:10]


@pytest.mark.parametrize(
    ("allowed", "cores", "used"),
    [(1, 8, 1), (4, 8, 4), (8, 8, 7), (8, 3, 2), (2, 1, 1)],
    ids=["OMP_NUM_THREADS=1", "four of eight", "one is left", "taskset", "one core"],
)
def test_scoring_takes_no_more_threads_than_it_may(
    random_model: Path, monkeypatch: pytest.MonkeyPatch, allowed: int, cores: int, used: int
) -> None:
    import lm_eval
    import torch

    taken: list[int] = []

    def evaluate(**_: object) -> dict[str, object]:
        taken.append(torch.get_num_threads())
        return {"samples": {"rtrl_snippets": []}}

    monkeypatch.setattr(lm_eval, "simple_evaluate", evaluate)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    before = torch.get_num_threads()
    torch.set_num_threads(allowed)
    try:
        LmEvalSuite("rtrl_snippets").run(subject(random_model), [], lambda _: None)
        assert (taken, torch.get_num_threads()) == ([used], allowed)
    finally:
        torch.set_num_threads(before)


def test_useless_weights_are_no_zeros(tmp_path: Path) -> None:
    suite = LmEvalSuite("rtrl_loglik", include=_perplexity_task(tmp_path), limit=4)
    with pytest.raises(IntegrityError, match="no finite score"):
        suite.run(subject(checkpoint(tmp_path / "nan", float("nan"))), suite.cases(), lambda _: None)


def test_perplexity_keeps_its_weights(random_model: Path, tmp_path: Path) -> None:
    suite = LmEvalSuite("rtrl_loglik", include=_perplexity_task(tmp_path))
    metric = suite.spec.metrics[0]
    assert (metric.name, metric.direction, metric.bounds) == ("bits_per_byte", "lower", None)
    first = suite.run(subject(random_model), suite.cases(), lambda _: None)[0]
    nats, count = first.values["bits_per_byte"]
    assert count == len("def f(x):\n    return x\n")
    assert nats / count == pytest.approx(5.5, abs=0.6)  # a random model over 257 bytes: ln 257 = 5.55


@pytest.mark.slow
def test_unknown_task_is_a_usage_error() -> None:
    suite = LmEvalSuite("no_such_task")
    with pytest.raises(UsageError, match="no_such_task") as caught:
        suite.cases()
    assert caught.value.hint


def _perplexity_task(folder: Path) -> Path:
    tasks = folder / "tasks"
    tasks.mkdir()
    (tasks / "docs.py").write_text(
        "from datasets import Dataset\n"
        "def load(**_):\n"
        "    return {'test': Dataset.from_list([{'text': 'def f(x):\\n    return x\\n'}] * 4)}\n"
    )
    (tasks / "rtrl_loglik.yaml").write_text(
        "task: rtrl_loglik\ncustom_dataset: !function docs.load\noutput_type: loglikelihood_rolling\n"
        "test_split: test\ndoc_to_text: ''\ndoc_to_target: text\nmetric_list:\n  - metric: bits_per_byte\n"
    )
    return tasks
