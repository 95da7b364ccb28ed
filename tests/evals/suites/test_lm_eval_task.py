"""The local lm-eval task, through the real harness, on a small random checkpoint."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from cursorbench.errors import DependencyDownError, IntegrityError, UsageError
from evals.suites.lm_eval_task import LmEvalSuite
from evals.suites.tasks import snippets
from tests.evals.suites.forward import checkpoint, subject

ROOT = Path(__file__).parents[3]


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
    assert suite.spec.metrics[0].limits is None  # likelihoods do not change from one time to the next
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


@pytest.mark.parametrize("begins", [False, True])
def test_the_engine_is_asked_for_what_the_harness_would_compute(begins: bool, tmp_path: Path) -> None:
    """Likelihoods, greediness and rolling windows as the harness's own Hugging Face model gives them.

    Also of a checkpoint whose texts begin with a token; rolling, the harness would put two of them there.
    """
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    from evals.suites.engine_lm import EngineLM

    def ask(kind: str, *arguments: object) -> Instance:
        return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)

    model = checkpoint(tmp_path, begins=begins)
    ours = EngineLM(subject(model, 66), batch=3)
    theirs = HFLM(pretrained=str(model), device="cpu", max_length=64, batch_size=1)
    pairs = [ask("loglikelihood", *pair) for pair in (("def f(", "x):"), ("", "import os"), ("a b ", "c"))]
    left, right = ours.loglikelihood(pairs), theirs.loglikelihood(pairs)
    assert [one[0] for one in left] == pytest.approx([one[0] for one in right], abs=1e-4)
    assert [one[1] for one in left] == [one[1] for one in right]
    texts = [ask("loglikelihood_rolling", text) for text in ("return x\n" * 20, "short")]
    until = {"until": ["\n"], "max_gen_toks": 8, "do_sample": False}
    made = [ask("generate_until", text, dict(until)) for text in ("def g(", "x" * 200)]
    assert ours.generate_until(made) == theirs.generate_until(made)
    theirs.add_bos_token = False
    assert ours.loglikelihood_rolling(texts) == pytest.approx(theirs.loglikelihood_rolling(texts), abs=1e-3)


def _writing_task(folder: Path, name: str, rest: str = "") -> Path:
    """A folder with one task: two documents, four tokens to be written of each."""
    folder.mkdir()
    (folder / "docs.py").write_text(
        "from datasets import Dataset\n"
        "def load(**_):\n"
        "    return {'test': Dataset.from_list([{'q': 'def f(', 'a': 'x'}, {'q': 'import ', 'a': 'os'}])}\n"
    )
    (folder / f"{name}.yaml").write_text(
        f"task: {name}\ncustom_dataset: !function docs.load\noutput_type: generate_until\ntest_split: test\n"
        "doc_to_text: q\ndoc_to_target: a\ngeneration_kwargs:\n  until: ['\\n']\n  max_gen_toks: 4\n"
        "metric_list:\n  - metric: exact_match\n    aggregation: mean\n    higher_is_better: true\n" + rest
    )
    return folder


def test_a_task_that_generates(random_model: Path, tmp_path: Path) -> None:
    tasks = _writing_task(tmp_path / "tasks", "rtrl_say")
    suite = LmEvalSuite("rtrl_say", include=tasks)
    assert suite.spec.metrics[0].sampled
    found = suite.run(subject(random_model), suite.cases(), lambda n: None)
    assert [one.values["exact_match"] for one in found] == [(0.0, 1.0), (0.0, 1.0)]


def test_a_case_is_a_document_and_no_place_in_a_list(tmp_path: Path) -> None:
    """A task that drops doubles by a set has its documents in another order in every process: of an eval that
    was killed some were tried twice and others never, and the arms compared one document with another."""
    folder = _writing_task(tmp_path / "tasks", "rtrl_say")
    before = LmEvalSuite("rtrl_say", include=folder).cases()
    assert LmEvalSuite("rtrl_say", include=folder).cases() == before
    docs = folder / "docs.py"
    docs.write_text(docs.read_text().replace("'os'}])", "'os'}][::-1])"))
    after = LmEvalSuite("rtrl_say", include=folder).cases()
    assert len(after) == 2
    assert not set(after) & set(before)


def test_documents_are_loaded_once_for_all_checkpoints(random_model: Path, tmp_path: Path) -> None:
    """Of a task that gives others each time the arms were asked different ones under the same names."""
    folder = _writing_task(tmp_path / "tasks", "rtrl_say")
    with (folder / "docs.py").open("a") as stream:
        stream.write(
            "import itertools\nnumber = itertools.count()\n"
            "def anew(**_):\n"
            "    return {'test': Dataset.from_list([{'q': f'def f{next(number)}(', 'a': 'x'}])}\n"
            "def judged(doc, results):\n    return {'right': float(doc['q'][5])}\n"
        )
    task = folder / "rtrl_say.yaml"
    head, _, _ = task.read_text().replace("docs.load", "docs.anew").partition("metric_list:")
    metric = "metric: right, aggregation: mean, higher_is_better: true"
    task.write_text(f"{head}process_results: !function docs.judged\nmetric_list:\n  - {{{metric}}}\n")
    suite = LmEvalSuite("rtrl_say", include=folder)
    ran = [suite.run(subject(random_model), suite.cases(), lambda n: None) for _ in range(2)]
    assert ran[0] == ran[1]


def _asked(folder: Path, settings: dict[str, Any]) -> Any:
    from evals.suites.engine_lm import EngineLM

    return EngineLM(subject(folder, context=64))._asked("def f(", settings)


def test_a_task_is_sampled_as_it_says(random_model: Path) -> None:
    """HumanEval's top_p of 0.95 was left out, without a word."""
    settings = {"until": ["\n"], "do_sample": True, "temperature": 0.2, "top_p": 0.95, "top_k": None}
    asked = _asked(random_model, {**settings, "num_beams": 1, "max_gen_toks": 58})
    assert (asked.temperature, asked.sampling, asked.max_tokens) == (0.2, {"top_p": 0.95}, 58)
    assert len(asked.prompt) == 6
    with pytest.raises(UsageError, match="beam search"):
        _asked(random_model, {**settings, "num_beams": 4, "max_gen_toks": 8})


def test_a_text_begins_where_there_is_no_prompt(random_model: Path) -> None:
    """vLLM refuses an empty prompt, and that was said to be damage (12)."""
    from evals.suites.engine_lm import EngineLM

    model = EngineLM(subject(random_model, context=64))
    assert model._asked("", {"max_gen_toks": 63}).prompt == (model.prefix_token_id,)


def test_answers_as_long_as_the_context_are_refused(random_model: Path) -> None:
    """A prompt lost its beginning for each token too many: empty ones were the engine's failure (12)."""
    with pytest.raises(UsageError, match="64 tokens, which leave no room for a prompt") as caught:
        _asked(random_model, {"until": ["\n"], "max_gen_toks": 64})
    assert "engine.max_model_len" in caught.value.hint


def test_a_group_of_own_tasks_is_none(tmp_path: Path) -> None:
    tasks = _writing_task(tmp_path / "tasks", "rtrl_say")
    (tasks / "both.yaml").write_text("group: rtrl_both\ntask: [rtrl_say]\n")
    (tasks / "a.yaml").write_text("task: rtrl_a\n  x: [\n")  # which has nothing to do with it
    with pytest.raises(UsageError, match="has no task 'rtrl_both', but several of that name") as caught:
        LmEvalSuite("rtrl_both", include=tasks).require_known()
    assert "no group" in caught.value.hint


def test_of_two_files_with_one_name_none_is_taken(tmp_path: Path) -> None:
    """The harness took the first, without a word; a file that it could not read was no task at all."""
    tasks = _writing_task(tmp_path / "tasks", "rtrl_say")
    told = (tasks / "rtrl_say.yaml").read_text()
    (tasks / "b").mkdir()
    (tasks / "b" / "more.yaml").write_text("include: ../rtrl_say.yaml\ntask: rtrl_other\n")
    LmEvalSuite("rtrl_say", include=tasks).require_known()
    (tasks / "b" / "again.yaml").write_text(told)
    with pytest.raises(UsageError, match=r"'rtrl_say' is declared in b/again.yaml and in rtrl_say.yaml"):
        LmEvalSuite("rtrl_say", include=tasks).require_known()
    LmEvalSuite("rtrl_other", include=tasks).require_known()


def test_a_task_that_runs_what_the_model_wrote_is_refused(tmp_path: Path) -> None:
    """HumanEval, MBPP: told after a training and the engine's start, to set what rtrl has no setting for."""
    tasks = _writing_task(tmp_path / "tasks", "rtrl_say", "unsafe_code: true\n")
    (tasks / "more.yaml").write_text("include: rtrl_say.yaml\ntask: rtrl_more\n")
    for name in ("rtrl_say", "rtrl_more"):
        with pytest.raises(UsageError, match="outside of any sandbox"):
            LmEvalSuite(name, include=tasks).require_known()
        with pytest.raises(UsageError, match="outside of any sandbox"):
            _ = LmEvalSuite(name, include=tasks).spec


def _own_task(folder: Path, name: str, metrics: str, rest: str = "") -> Path:
    """A folder with one task: four documents of two choices, the right one in turn."""
    folder.mkdir()
    (folder / "docs.py").write_text(
        "from datasets import Dataset\n"
        "def load(**_):\n"
        "    return {'test': Dataset.from_list([{'q': f'def f{n}(', 'a': n % 2} for n in range(4)])}\n"
        "def half(doc, results):\n"
        "    return {'known': float('nan') if doc['a'] else 7.5}\n"
    )
    (folder / f"{name}.yaml").write_text(
        f"task: {name}\ncustom_dataset: !function docs.load\noutput_type: multiple_choice\ntest_split: test\n"
        f"doc_to_text: q\ndoc_to_target: a\ndoc_to_choice: ['x', 'y']\n{rest}metric_list:\n{metrics}"
    )
    return folder


def test_examples_before_a_document_are_the_same_whatever_else_is_asked(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts made again as a check had other prompts than those that they were held against."""
    from evals.suites.engine_lm import EngineLM

    metrics = "  - metric: acc\n    aggregation: mean\n    higher_is_better: true\n"
    tasks = _own_task(tmp_path / "tasks", "rtrl_shots", metrics, "num_fewshot: 2\nfewshot_split: test\n")
    prompts: dict[str, str] = {}
    score = EngineLM.loglikelihood

    def asked(self: EngineLM, requests: list[Any], **given: Any) -> list[Any]:
        prompts.update({f"{one.doc['q']} {one.args[1]}": one.args[0] for one in requests})
        found: list[Any] = score(self, requests, **given)
        return found

    monkeypatch.setattr(EngineLM, "loglikelihood", asked)
    suite = LmEvalSuite("rtrl_shots", include=tasks)
    suite.run(subject(random_model), suite.cases(), lambda n: None)
    every = dict(prompts)
    suite.run(subject(random_model), [*suite.cases()][2:], lambda n: None)
    assert len(every) == 8
    assert prompts == every
    assert all(prompt.count("def f") == 3 for prompt in every.values())


def test_what_is_no_mean_over_documents_is_not_gated(random_model: Path, tmp_path: Path) -> None:
    """lm-eval's F1 has (right, predicted) as its sample: that is no numerator and denominator."""
    both = _own_task(tmp_path / "both", "rtrl_f1", "  - metric: f1\n  - metric: acc\n")
    suite = LmEvalSuite("rtrl_f1", include=both)
    assert [(one.name, one.gated, one.direction) for one in suite.spec.metrics] == [("acc", True, "higher")]
    found = suite.run(subject(random_model), suite.cases(), lambda n: None)
    assert [set(one.values) for one in found] == [{"acc"}] * 4
    for number, name in enumerate(("mcc", "f1", "brier_score")):
        only = _own_task(tmp_path / str(number), f"rtrl_{number}", f"  - metric: {name}\n")
        with pytest.raises(UsageError, match=f"no metric that is a mean over documents .{name}"):
            _ = LmEvalSuite(f"rtrl_{number}", include=only).spec


def test_a_mean_of_what_is_known_over_its_documents(random_model: Path, tmp_path: Path) -> None:
    metric = "  - metric: known\n    aggregation: nanmean\n    higher_is_better: false\n"
    folder = _own_task(tmp_path / "own", "rtrl_known", metric, "process_results: !function docs.half\n")
    suite = LmEvalSuite("rtrl_known", include=folder)
    (known,) = suite.spec.metrics
    assert (known.direction, known.bounds) == ("lower", None)  # 7.5 is no share
    found = suite.run(subject(random_model), suite.cases(), lambda n: None)
    assert [one.values["known"] for one in found] == [(7.5, 1.0), (0.0, 0.0)] * 2


def test_of_several_filters_the_first_counts(random_model: Path, tmp_path: Path) -> None:
    """As gsm8k has them: one sample for each document and filter."""
    filters = (
        "filter_list:\n  - name: strict\n    filter:\n      - function: regex\n        regex_pattern: '(.)'\n"
        "        fallback: os\n      - function: take_first\n"
        "  - name: loose\n    filter:\n      - function: take_first\n"
    )
    tasks = _writing_task(tmp_path / "tasks", "rtrl_two", filters)
    suite = LmEvalSuite("rtrl_two", include=tasks)
    found = suite.run(subject(random_model), suite.cases(), lambda n: None)
    assert [one.case for one in found] == list(suite.cases())


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


@pytest.mark.parametrize(
    ("metric", "gives", "pair"),
    [
        ("perplexity, aggregation: mean", "math.e", (2.718, 1.0)),
        ("cost, aggregation: perplexity", "-2.0", (2.0, 1.0)),
        ("cost, aggregation: weighted_perplexity", "(-2.0, 8)", (2.0, 8.0)),
    ],
)
def test_what_a_metric_is_its_aggregation_says(
    random_model: Path, tmp_path: Path, metric: str, gives: str, pair: tuple[float, float]
) -> None:
    """A mean of perplexities was taken for log-likelihoods, by its name: more of it was better."""
    told = f"  - {{metric: {metric}, higher_is_better: false}}\n"
    folder = _own_task(tmp_path / "own", "rtrl_cost", told, "process_results: !function docs.cost\n")
    with (folder / "docs.py").open("a") as stream:
        name = metric.partition(",")[0]
        stream.write(f"import math\ndef cost(doc, results):\n    return {{'{name}': {gives}}}\n")
    suite = LmEvalSuite("rtrl_cost", include=folder)
    (found,) = suite.spec.metrics
    assert (found.name, found.direction) == (name, "lower")
    (first, *_) = suite.run(subject(random_model), suite.cases(), lambda n: None)
    assert first.values[name] == pytest.approx(pair, abs=1e-3)


def test_unknown_task_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also among the harness's own, of which a few are listed here: all of them take seconds."""
    from lm_eval.tasks import TaskManager, manager

    shutil.copytree(Path(manager.__file__).parent / "arc", tmp_path / "arc")
    monkeypatch.setattr(manager, "__file__", str(tmp_path / "manager.py"))
    assert "arc_easy" in TaskManager().all_subtasks
    suite = LmEvalSuite("no_such_task")
    with pytest.raises(UsageError, match="no_such_task") as caught:
        suite.cases()
    assert caught.value.hint
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "no_such_task.yml").write_text("task: no_such_task\n")
    with pytest.raises(UsageError, match="no_such_task") as caught:
        LmEvalSuite("no_such_task", include=tmp_path / "own").require_known()
    assert "no_such_task.yml is not looked at" in caught.value.hint
    (tmp_path / "own" / "b.yaml").write_text("task: no_such_task\ndoc_to_text: {{q}}: x\n")
    with pytest.raises(UsageError, match="no_such_task") as caught:
        LmEvalSuite("no_such_task", include=tmp_path / "own").require_known()
    assert re.match("b.yaml cannot be read: .*line 2", caught.value.hint)


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


DOCUMENTS = b'{"q": "a", "a": 0}\n{"q": "b", "a": 1}\n'


def _file_task(folder: Path, documents: bytes, rest: str = "", code: str = "") -> Path:
    """A folder with a task over documents in a file of JSON lines."""
    folder.mkdir()
    (folder / "documents.jsonl").write_bytes(documents)
    (folder / "code.py").write_text(code)
    (folder / "rtrl_file.yaml").write_text(
        "task: rtrl_file\ndataset_path: json\ndataset_kwargs:\n"
        f"  data_files: {{test: {folder / 'documents.jsonl'}}}\n"
        "output_type: multiple_choice\ntest_split: test\ndoc_to_text: q\ndoc_to_target: a\n"
        "doc_to_choice: ['x', 'y']\nmetric_list:\n  - metric: acc\n    aggregation: mean\n"
        "    higher_is_better: true\n" + rest
    )
    return folder


@pytest.mark.parametrize(
    ("documents", "code", "said"),
    [
        (
            b"hello\n",
            "",
            "generating the dataset (JSON parse error: ",
        ),
        (b'{"q": "\xff", "a": 0}\n', "", "'rtrl_file' cannot be loaded: UnicodeDecodeError"),
        (b"", "", "'rtrl_file' cannot be loaded: StopIteration"),
        (b'{"q": "a", "a": 7}\n', "", "'rtrl_file' cannot be loaded: IndexError"),
        (DOCUMENTS, "def go(doc, results):\n    raise KeyError('solved')\n", "fails: KeyError: 'solved'"),
        (DOCUMENTS, "def go(doc, results):\n    return {'acc': 'yes'}\n", "'rtrl_file' fails: TypeError"),
        (DOCUMENTS, "def go(doc, results):\n    raise SystemExit\n", "'rtrl_file' fails: SystemExit"),
        (DOCUMENTS, "def go(doc, results):\n    raise SystemExit('no key')\n", "SystemExit: no key"),
    ],
)
def test_what_a_task_itself_raises_is_its_own(
    random_model: Path, tmp_path: Path, documents: bytes, code: str, said: str
) -> None:
    """It was a bug of rtrl (exit 1), and no word of which task; of `sys.exit()` a command that passed (0)."""
    rest = "process_results: !function code.go\n" if code else ""
    suite = LmEvalSuite("rtrl_file", include=_file_task(tmp_path / "tasks", documents, rest, code))
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        suite.run(subject(random_model), suite.cases(), lambda n: None)
    assert "documents" in caught.value.hint
    assert caught.value.code == 2


def test_a_signal_that_comes_while_a_task_judges_is_none_of_the_tasks_own(
    random_model: Path, tmp_path: Path
) -> None:
    code = "def go(doc, results):\n    raise SystemExit(143)\n"
    folder = _file_task(tmp_path / "tasks", DOCUMENTS, "process_results: !function code.go\n", code)
    suite = LmEvalSuite("rtrl_file", include=folder)
    with pytest.raises(SystemExit, match="143"):
        suite.run(subject(random_model), suite.cases(), lambda n: None)


def test_what_a_task_prints_is_not_on_the_commands_stdout(
    random_model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a judge that is a program each verdict stood before the JSON document."""
    code = (
        "import subprocess\ndef go(doc, results):\n    print('noise')\n"
        "    subprocess.run(['echo', 'noise'], check=True)\n    return {'acc': 1.0}\n"
    )
    folder = _file_task(tmp_path / "tasks", DOCUMENTS, "process_results: !function code.go\n", code)
    suite = LmEvalSuite("rtrl_file", include=folder)
    suite.run(subject(random_model), suite.cases(), lambda n: None)
    os.write(1, b"the document")
    assert capfd.readouterr().out == "the document"


@pytest.mark.parametrize(
    ("metric", "rest", "said"),
    [
        (
            "right}",
            "process_results: !function code.go\n",
            "'right' has no aggregation and no higher_is_better",
        ),
        (
            "right, aggregation: mean}",
            "process_results: !function code.go\n",
            "'right' has no higher_is_better",
        ),
        (
            "right, higher_is_better: true}",
            "process_results: !function code.go\n",
            "'right' has no aggregation",
        ),
        ("right, aggregation: mean, higher_is_better: true}", "", "nobody makes its metric 'right'"),
    ],
)
def test_a_metric_that_nobody_can_read_is_refused(
    tmp_path: Path, metric: str, rest: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an aggregation lm-eval says `KeyError: None`; of an error rate more was taken for better."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # the harness looks for a metric among those of the Hub
    code = "def go(doc, results):\n    return {'right': 1.0}\n"
    folder = _file_task(tmp_path / "tasks", DOCUMENTS, rest, code)
    task = folder / "rtrl_file.yaml"
    head, _, _ = task.read_text().partition("metric_list:")
    task.write_text(f"{head}{rest}metric_list:\n  - {{metric: {metric}\n")
    with pytest.raises(UsageError, match=re.escape(said)):
        _ = LmEvalSuite("rtrl_file", include=folder).spec


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("{'right': float('nan')}", "'rtrl_say' gave no finite number of rtrl_say:0"),
        ("{'rigth': 1.0}", "'rtrl_say' gave no right of rtrl_say:0"),
    ],
)
def test_what_a_tasks_own_judge_gives_is_not_the_checkpoints_fault(
    random_model: Path, tmp_path: Path, returned: str, said: str
) -> None:
    """A judge that divides by nothing had the training looked at: "its weights are not usable"."""
    folder = _writing_task(tmp_path / "tasks", "rtrl_say")
    with (folder / "docs.py").open("a") as stream:
        stream.write(f"def judged(doc, results):\n    return {returned}\n")
    task = folder / "rtrl_say.yaml"
    head, _, _ = task.read_text().partition("metric_list:")
    metric = "metric: right, aggregation: mean, higher_is_better: true"
    task.write_text(f"{head}process_results: !function docs.judged\nmetric_list:\n  - {{{metric}}}\n")
    suite = LmEvalSuite("rtrl_say", include=folder)
    with pytest.raises(UsageError, match=said) as caught:
        suite.run(subject(random_model), suite.cases(), lambda n: None)
    assert caught.value.code == 2


def test_documents_that_cannot_be_fetched_are_nobodys_mistake(tmp_path: Path) -> None:
    folder = _file_task(tmp_path / "tasks", DOCUMENTS)
    task = folder / "rtrl_file.yaml"
    task.write_text(task.read_text().replace("dataset_path: json", "custom_dataset: !function code.load"))
    (folder / "code.py").write_text("def load(**_):\n    raise ConnectionError('no route')\n")
    with pytest.raises(DependencyDownError, match="no route"):
        _ = LmEvalSuite("rtrl_file", include=folder).spec


@pytest.mark.parametrize(
    "raised",
    [
        "OSError(28, 'No space left on device')",
        "MemoryError('4 GiB')",
        "ImportError('a.so: failed to map segment from shared object')",
    ],
)
def test_what_the_machine_lacks_is_nobodys_mistake(tmp_path: Path, raised: str) -> None:
    """Of a full disk `datasets` says that the documents were not generated: a cron's log named the YAML."""
    folder = _file_task(tmp_path / "tasks", DOCUMENTS)
    task = folder / "rtrl_file.yaml"
    task.write_text(task.read_text().replace("dataset_path: json", "custom_dataset: !function code.load"))
    (folder / "code.py").write_text(
        f"def load(**_):\n    try:\n        raise {raised}\n"
        "    except Exception as error:\n        raise RuntimeError('not generated') from error\n"
    )
    with pytest.raises(DependencyDownError, match="not generated") as caught:
        _ = LmEvalSuite("rtrl_file", include=folder).spec
    assert "HF_HOME" in caught.value.hint
