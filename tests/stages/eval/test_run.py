"""`rtrl eval` through the real runner and store, with an engine of shares instead of weights."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from cursorbench.harness.chat import ChatRequest
from evals.cases import Attempt
from evals.gate import Rules, decide
from evals.stats.sequential import Look
from evals.suites.harness import HarnessSuite
from stages import locks
from stages.config import Settings
from stages.errors import InputMissingError, UsageError
from stages.eval import arms, own_tasks
from stages.eval import attempts as files
from stages.eval.kept import Kept
from stages.eval.run import EvalStage, start_engine
from stages.eval.stub import StubEngine
from stages.eval.subjects import Engines
from stages.eval.suites import build
from stages.progress import Silent
from stages.result import StageResult
from stages.runner import run_stage
from stages.stage import Artifact
from stages.target.as_served import taken
from stages.target.endpoint import LOCK, Endpoint, EngineAt, write_endpoint
from stages.workspace import Workspace
from tests.stages.eval.bench import STEADY, Bench, cases, under


def test_a_broken_candidate_is_rejected_and_leaves_a_report(bench: Bench) -> None:
    worse = bench.checkpoint(0.6, 0.2, bench.live.digest)
    result = bench.eval()
    assert (result.status, result.exit_code) == ("rejected", 3)
    report = result.outputs["report"]
    assert report.meta["verdict"] == "regressed"
    assert (report.meta["candidate"], report.meta["baseline"]) == (worse.digest, bench.live.digest)
    assert cases(report, "candidate") == cases(report, "baseline") == 240
    summary = (report.path / "summary.txt").read_text()
    assert summary.startswith("REGRESSED: checkpoint@v2")
    assert "invalid_calls" in summary
    assert len(summary.splitlines()) <= 24
    verdict = json.loads((report.path / "verdict.json").read_text())
    assert verdict["schema"] == "rtrl-verdict/1"
    again = bench.eval()
    assert (again.status, again.exit_code, again.run_id) == ("rejected", 3, result.run_id)


class Thinks(StubEngine):
    """Thinks for 200 tokens before it answers."""

    def chat(self, batch: Sequence[ChatRequest], *, seed: int | None = None) -> list[dict[str, Any]]:
        answers = super().chat(batch, seed=seed)
        return [
            one if each.max_tokens > 200 else {"content": None, "finish_reason": "length"}
            for one, each in zip(answers, batch, strict=True)
        ]


@pytest.mark.parametrize("settings", [[], ["eval.max_tokens=300"]])
def test_a_model_that_is_cut_while_it_thinks_is_told_of(bench: Bench, settings: list[str]) -> None:
    """What it thinks took all tokens of a model call: the gate stayed inconclusive, and nothing said why."""
    bench.stage = EvalStage(engine=lambda workspace, folder: Thinks(folder))
    bench.checkpoint(0.6, 0.2, bench.live.digest)
    result = bench.eval([*STEADY, "eval.requests=60", *settings])
    told = "harness: 60 of 60 answers of the live checkpoint were cut by their length"
    assert any(one.startswith(told) for one in result.warnings) == (not settings)
    assert result.status == ("rejected" if settings else "inconclusive")


def test_the_next_eval_reuses_the_live_attempts_and_checks_a_tenth(bench: Bench) -> None:
    # No stub answer edits code, so persistence is undefined: gate what can be measured.
    equal = bench.checkpoint(0.1, 0.2001, bench.live.digest)
    result = bench.eval(STEADY)
    assert result.status == "inconclusive"  # persistence has nothing to measure
    assert "anything to measure" in " ".join(result.outputs["report"].meta["reasons"])
    asked_both = bench.engines[-1].asked
    assert asked_both == 480
    third = bench.checkpoint(0.1, 0.2002, bench.live.digest)
    reused = bench.eval(STEADY, checkpoint=third.digest)
    assert bench.engines[-1].asked == 240 + 24
    summary = (reused.outputs["report"].path / "summary.txt").read_text()
    assert "24 made again agree" in summary
    assert reused.inputs["baseline_attempts"].digest == result.outputs["report"].digest
    again = bench.eval(STEADY, checkpoint=third.digest)
    assert again.run_id == reused.run_id
    assert equal.digest != third.digest


def test_what_let_a_checkpoint_pass_is_not_what_the_next_one_is_held_against(bench: Bench) -> None:
    """It is live because these went well: equal candidates passed less often cycle by cycle."""
    second = bench.checkpoint(0.1, 0.2001, bench.live.digest)
    bench.eval(STEADY)
    for alias in ("live", "anchor"):
        bench.store.move_alias("auto", alias, second.digest, reason="test")
    third = bench.checkpoint(0.1, 0.2002, second.digest)
    report = bench.eval(STEADY, checkpoint=third.digest)
    assert "baseline_attempts" not in report.inputs
    assert bench.engines[-1].asked == 480
    fourth = bench.checkpoint(0.1, 0.2003, second.digest)
    again = bench.eval(STEADY, checkpoint=fourth.digest)
    assert again.inputs["baseline_attempts"].digest == report.outputs["report"].digest
    bench.store.move_alias("auto", "live", bench.live.digest, reason="test")
    fifth = bench.checkpoint(0.1, 0.2004, bench.live.digest)
    drift = bench.eval(STEADY, checkpoint=fifth.digest)
    assert drift.inputs["anchor_attempts"].digest == again.outputs["report"].digest


def test_what_a_live_checkpoint_once_did_is_renewed_while_nothing_passes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed for as long as the checkpoint did, and the longer the better it had gone. A tenth is made
    again at every eval as a check, each time another, and the next candidate is held against that."""
    drawn = Random(0)

    def numbered(engine: StubEngine, batch: list[ChatRequest], *, seed: int | None = None) -> Any:
        told = [[*each.messages, {"role": "user", "content": str(drawn.random())}] for each in batch]
        return [engine._answer(replace(each, messages=more)) for each, more in zip(batch, told, strict=True)]

    monkeypatch.setattr(StubEngine, "chat", numbered)
    found: list[StageResult] = []
    for n in range(1, 5):
        bench.checkpoint(0.1, 0.2 + n / 10_000, bench.live.digest)
        found.append(bench.eval(STEADY))
    reports = [result.outputs["report"] for result in found]
    used = [result.inputs["baseline_attempts"].digest for result in found[1:]]
    assert used == [report.digest for report in reports[:-1]]
    names = [f"{report.path}/harness.baseline.parquet" for report in reports]
    told = [{row["case"]: row["detail"] for row in pq.read_table(name).to_pylist()} for name in names]
    changed = [{case for case in old if old[case] != new[case]} for old, new in pairwise(told)]
    assert all(0 < len(one) <= 24 for one in changed)
    assert len(set.union(*changed)) > 24, "others each time"
    second = bench.eval(STEADY, checkpoint=reports[1].meta["candidate"])
    assert (second.run_id, second.status) == (found[1].run_id, found[1].status), "still the same eval"


def test_what_is_made_anew_is_drawn_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the workspace's seed the live checkpoint did again, answer by answer, what it had passed with."""
    random = Random(0)

    def chat(
        engine: StubEngine, batch: list[ChatRequest], *, seed: int | None = None
    ) -> list[dict[str, Any]]:
        if seed is not None:
            random.seed(seed)  # as the engine does: the same batch after the same seed is the same
        told = [[*each.messages, {"role": "user", "content": str(random.random())}] for each in batch]
        return [engine._answer(replace(each, messages=more)) for each, more in zip(batch, told, strict=True)]

    monkeypatch.setattr(StubEngine, "chat", chat)

    def tried(report: Artifact, role: str) -> list[dict[str, Any]]:
        (file,) = (row["file"] for row in report.meta["attempts"] if row["role"] == role)
        rows: list[dict[str, Any]] = pq.read_table(report.path / file).to_pylist()
        return rows

    second = bench.checkpoint(0.1, 0.2, bench.live.digest)
    first = bench.eval(STEADY, checkpoint=second.digest).outputs["report"]
    assert tried(first, "candidate") == tried(first, "baseline"), "both arms of one eval draw alike"
    for alias in ("live", "anchor"):
        bench.store.move_alias("auto", alias, second.digest, reason="test")
    third = bench.checkpoint(0.1, 0.2001, second.digest)
    anew = bench.eval(STEADY, checkpoint=third.digest).outputs["report"]
    assert len(tried(anew, "baseline")) == len(tried(first, "candidate"))
    assert tried(anew, "baseline") != tried(first, "candidate")


def test_the_anchors_stored_attempts_are_checked_where_no_others_are(bench: Bench) -> None:
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    first = bench.eval(STEADY).outputs["report"]
    second = bench.checkpoint(0.1, 0.2002, bench.live.digest)
    bench.store.move_alias("auto", "live", second.digest, reason="test")
    third = bench.checkpoint(0.1, 0.2003, second.digest)
    result = bench.eval(STEADY, checkpoint=third.digest)
    assert result.inputs["anchor_attempts"].digest == first.digest
    assert bench.engines[-1].asked == 480 + 24


def test_changed_conditions_reuse_nothing(bench: Bench) -> None:
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    bench.eval(STEADY)
    third = bench.checkpoint(0.1, 0.2002, bench.live.digest)
    result = bench.eval([*STEADY, "eval.population_seed=7"], checkpoint=third.digest)
    assert "baseline_attempts" not in result.inputs
    assert bench.engines[-1].asked == 480
    fresh = bench.eval([*STEADY, "eval.cache=false"], checkpoint=third.digest)
    assert "baseline_attempts" not in fresh.inputs


@pytest.mark.parametrize("package", ["torch", "lm_eval"])
def test_another_version_of_what_computes_an_attempt_is_another_condition(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    before = under(bench.workspace)
    real = importlib.metadata.version
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0" if name == package else real(name))
    assert under(bench.workspace) != before


def test_tasks_that_change_while_they_are_tried_stand_in_for_nothing(bench: Bench) -> None:
    """What was tried with the old ones went on record as of the new ones, and the next eval used it."""
    task = bench.workspace.root / "tasks" / "mine.yaml"
    task.parent.mkdir()
    task.write_text("one")
    include = [*STEADY, "eval.lm_eval_include=tasks"]

    def edited(workspace: Workspace, folder: Path) -> StubEngine:
        task.write_text("two")
        return StubEngine(folder)

    def removed(workspace: Workspace, folder: Path) -> StubEngine:
        shutil.rmtree(task.parent)
        return StubEngine(folder)

    start = bench.stage
    bench.stage = EvalStage(engine=edited)
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    report = bench.eval(include).outputs["report"]
    assert report.meta["conditions"] == ""
    bench.stage = start
    second = bench.checkpoint(0.1, 0.2002, bench.live.digest)
    whole = bench.eval(include, checkpoint=second.digest)
    assert "baseline_attempts" not in whole.inputs
    assert whole.outputs["report"].meta["conditions"] == under(bench.workspace.with_overrides(include))
    bench.stage = EvalStage(engine=removed)
    third = bench.checkpoint(0.1, 0.2003, bench.live.digest)
    gone = bench.eval([*include, "eval.cache=false"], checkpoint=third.digest)
    assert gone.outputs["report"].meta["conditions"] == "", "and what took hours is not lost"


def test_a_changed_task_of_ones_own_is_another_eval(bench: Bench) -> None:
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    task = bench.workspace.root / "tasks" / "mine.yaml"
    task.parent.mkdir()
    include = [*STEADY, "eval.lm_eval_include=tasks"]
    runs = []
    for text in ("one", "two", "two"):
        task.write_text(text)
        runs.append(bench.eval(include).run_id)
    assert runs[0] != runs[1] == runs[2]


def test_changed_documents_of_ones_own_task_are_another_eval(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be anywhere. The same run was done already, and live was held against other documents."""
    folder, elsewhere = bench.workspace.root / "tasks", tmp_path / "elsewhere"
    folder.mkdir()
    (elsewhere / "parts").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    one, two, three = elsewhere / "one.jsonl", elsewhere / "two.jsonl", elsewhere / "parts" / "three.jsonl"
    four = tmp_path / "four.jsonl"
    settings = {
        "one": f"dataset_path: json\ndataset_kwargs:\n  data_files: {{test: ['{one}']}}\n",
        "two": "dataset_path: elsewhere\ndataset_kwargs:\n  data_files: two.*\n",
        "three": "dataset_path: json\nprocess_results: !function code.go\ndataset_kwargs:\n  data_dir: "
        "elsewhere/parts\n",
        "four": "dataset_path: nobody/has-this\n",
        "five": "no: [yaml\n",
    }
    for name, text in settings.items():
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{text}")
    own = f"- task: six\n  dataset_path: json\n  dataset_kwargs:\n    data_files: '{four}'\n"
    (folder / "group.yaml").write_text(f"group: of_six\ntask:\n{own}")
    here = bench.workspace.with_overrides(["eval.lm_eval_include=tasks"])
    known = set()
    for path in (one, two, three, four):
        path.write_text("{}\n")
    for path in (one, two, three, four):
        known.add(under(here))
        path.write_text('{"q": 1}\n')
    known.add(under(here))
    assert len(known) == 5
    assert under(here) in known


def test_the_gate_samples_as_users_are_served(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr("stages.engine.inprocess.InProcessEngine", lambda *_, **given: made.append(given))
    served = 'gateway.sampling={"temperature": 0.7, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1}'
    start_engine(bench.workspace.with_overrides([served]), bench.live.path)
    assert made[0]["sampling"] == {
        "temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.1,
    }  # fmt: skip
    asked: list[float | None] = []

    class Listening(StubEngine):
        def chat(self, batch: list[ChatRequest], *, seed: int | None = None) -> list[dict[str, Any]]:
            asked.extend(request.temperature for request in batch)
            return super().chat(batch, seed=seed)

    bench.stage = EvalStage(engine=lambda _, folder: Listening(folder))
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    first = bench.eval(STEADY)
    assert set(asked) == {None}, "left to the engine"
    asked.clear()
    other = bench.eval([*STEADY, served])
    assert other.run_id != first.run_id, "other sampling is another eval"
    assert len(asked) == 480, "and reuses nothing"
    asked.clear()
    bench.eval([*STEADY, "eval.temperature=0.5"])
    assert set(asked) == {0.5}


def test_what_the_stub_answers_is_no_attempt_of_vllms(bench: Bench) -> None:
    """An eval behind one with `engine.program = "stub"` had nothing to do, and reused what that said."""
    other = bench.workspace.with_overrides(["engine.program=stub"])
    assert under(other) != under(bench.workspace)


def test_a_repeated_eval_has_the_settings_it_was_recorded_with(bench: Bench) -> None:
    seen: list[tuple[float, int]] = []

    def engine(workspace: Workspace, folder: Path) -> StubEngine:
        settings = workspace.settings
        seen.append((settings.gateway.sampling.temperature, settings.engine.max_model_len))
        return StubEngine(folder)

    bench.stage = EvalStage(engine=engine)
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    recorded = bench.eval([*STEADY, 'gateway.sampling={"temperature": 0.7}', "engine.max_model_len=512"])
    run_stage(bench.workspace, bench.store, bench.stage, from_run=recorded.run_id)
    assert set(seen) == {(0.7, 512)}


def test_stored_attempts_that_do_not_agree_are_made_again(bench: Bench, tmp_path: Path) -> None:
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    first = bench.eval(STEADY).outputs["report"]
    # Another machine's engine would answer otherwise: let the live checkpoint's stored ones be broken calls.
    path = first.path / "harness.baseline.parquet"
    suite, spec = build(bench.workspace.settings.eval, bench.workspace.root, {})[0]
    stored = files.read(path, spec)
    path.parent.chmod(0o755)
    path.chmod(0o644)
    files.write(
        path,
        spec,
        [
            Attempt(one.case, one.cluster, 0, {**one.values, "invalid_calls": (1.0, 1.0)}, detail=one.detail)
            for one in stored
        ],
    )
    with Engines(StubEngine, 0, lambda one: one.path) as engines:
        found, account = arms.reuse(
            suite,
            engines.subject(bench.live),
            spec,
            files.read(path, spec),
            first.ref,
            share=0.1,
            seed=0,
            kept=Kept(tmp_path / "again", pytest.fail),
            progress=Silent(),
        )
    assert found is None
    assert not account.reused
    assert "did not agree" in account.note


def test_stored_attempts_that_nothing_can_be_held_against_are_not_used(bench: Bench, tmp_path: Path) -> None:
    suite, spec = build(bench.workspace.settings.eval, bench.workspace.root, {})[0]
    with Engines(StubEngine, 0, lambda one: one.path) as engines:
        whole = suite.run(engines.subject(bench.live), suite.cases(), lambda _: None)
        nobody = replace(engines.subject(bench.live), complete_batch=lambda requests: [None] * len(requests))
        found, account = arms.reuse(
            suite,
            nobody,
            spec,
            whole,
            "report@v1",
            share=0.1,
            seed=0,
            kept=Kept(tmp_path / "again", pytest.fail),
            progress=Silent(),
        )
    assert (found, account.reused) == (None, False)
    assert "could be made again as a check" in account.note


def test_a_check_that_could_not_disagree_is_none(bench: Bench, tmp_path: Path) -> None:
    """Five stored cases, of which a tenth was one: whatever that did, it agreed."""
    suite = HarnessSuite(5, 0)
    started: list[StubEngine] = []

    def start(folder: Path) -> StubEngine:
        started.append(StubEngine(folder))
        return started[-1]

    with Engines(start, 0, lambda one: one.path) as engines:
        subject = engines.subject(bench.live)
        whole = suite.run(subject, suite.cases(), lambda _: None)

        def reused(share: float) -> arms.Reuse:
            return arms.reuse(
                suite,
                subject,
                suite.spec,
                whole,
                "report@v1",
                share=share,
                seed=0,
                kept=Kept(tmp_path / f"again-{share}", pytest.fail),
                progress=Silent(),
            )[1]

        asked = started[0].asked
        assert (reused(0.1).reused, reused(0.1).rerun) == (False, 0)
        assert "a check of report@v1 takes 6 cases, and there are 5" in reused(0.1).note
        assert started[0].asked == asked, "all five were made again, and then anew"
        assert reused(0.0).reused, "that is what it asks for"


def test_attempts_lost_to_the_infrastructure_are_tried_again(bench: Bench, tmp_path: Path) -> None:
    suite, spec = build(bench.workspace.settings.eval, bench.workspace.root, {})[0]
    with Engines(StubEngine, 0, lambda one: one.path) as engines:
        subject = engines.subject(bench.live)
        whole = suite.run(subject, suite.cases(), lambda _: None)
        lost = [Attempt(one.case, one.cluster, 0, {}, failure="engine down") for one in whole[:5]]
        found, account = arms.reuse(
            suite,
            subject,
            spec,
            lost + whole[5:],
            "report@v1",
            share=0.0,
            seed=0,
            kept=Kept(tmp_path / "again", pytest.fail),
            progress=Silent(),
        )
    assert found is not None
    assert sorted(one.case for one in found) == sorted(suite.cases())
    assert not any(one.failure for one in found)
    assert account.rerun == 5


def test_what_could_not_be_made_again_keeps_what_was_stored() -> None:
    """Or a candidate could choose, by what breaks the sandbox, which attempts it is held against."""
    old = [Attempt(case, case, n, {"solved": (0.0, 1.0)}) for case in "abc" for n in (0, 1)]
    new = [replace(one, values={"solved": (1.0, 1.0)}) for one in old if one.case in "ab"]
    new[-1] = Attempt("b", "b", 1, {}, failure="the sandbox died")
    merged, renewed = arms._renewed(old, new, [])
    assert renewed == 2
    assert sorted((one.case, one.attempt, one.values["solved"][0]) for one in merged) == [
        ("a", 0, 1.0), ("a", 1, 1.0), ("b", 0, 0.0), ("b", 1, 0.0), ("c", 0, 0.0), ("c", 1, 0.0),
    ]  # fmt: skip


def test_drift_since_the_anchor_is_reported(bench: Bench) -> None:
    second = bench.checkpoint(0.1, 0.2001, bench.live.digest)
    bench.eval(STEADY)
    bench.store.move_alias("auto", "live", second.digest, reason="test")
    third = bench.checkpoint(0.1, 0.2002, second.digest)
    report = bench.eval(STEADY, checkpoint=third.digest).outputs["report"]
    assert report.meta["anchor"] == bench.live.digest
    assert "since the anchor (checkpoint@v1)" in (report.path / "summary.txt").read_text()


def test_the_summary_names_the_level_of_its_intervals(bench: Bench) -> None:
    bench.checkpoint(0.6, 0.2, bench.live.digest)
    report = bench.eval(["eval.alpha=0.01"]).outputs["report"]
    summary = (report.path / "summary.txt").read_text()
    assert "99 % interval" in summary
    assert "95 %" not in summary


def test_nothing_to_evaluate(bench: Bench) -> None:
    with pytest.raises(InputMissingError, match="nothing to evaluate") as caught:
        bench.eval()
    assert caught.value.code == 5
    assert "rtrl train" in caught.value.hint


def test_live_against_itself_says_so(bench: Bench) -> None:
    result = bench.eval(STEADY, checkpoint="checkpoint@live")
    assert any("with itself" in warning for warning in result.warnings)


def test_users_who_get_answers_made_otherwise_are_told_of(bench: Bench) -> None:
    """By an `rtrl serve --set`, or by one that is older than an edit of rtrl.toml."""
    served = Settings.parse("[engine]\nseed = 7\n[gateway.sampling]\ntop_p = 0.5\n", source="test")
    engine = EngineAt(pid=2, url="", key="", log="", temporary="")
    with locks.acquire(bench.workspace.run_dir / LOCK, what="rtrl serve").held():
        write_endpoint(
            bench.workspace.run_dir,
            Endpoint(
                pid=1, started_at="", line="auto", url="", admin_key="", engine=engine, settings=taken(served)
            ),
        )
        result = bench.eval([*STEADY, "eval.requests=60"], checkpoint="checkpoint@live")
    (told,) = (warning for warning in result.warnings if "rtrl serve" in warning)
    assert "engine.seed is 7, here 0; gateway.sampling.top_p is 0.5, here 1.0" in told


def test_unknown_suite_and_metric(bench: Bench) -> None:
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    with pytest.raises(UsageError, match="no suite 'nope'"):
        bench.eval(['eval.suites=["nope"]'])
    with pytest.raises(UsageError, match="nobody measures") as caught:
        bench.eval(['eval.margins={"harness.nope": 0.1}'])
    assert "harness.edit_persistence" in caught.value.hint


def test_perplexity_of_a_repository_of_ones_own(bench: Bench) -> None:
    """The stage over a repository: named by folder, held to the commit it was recorded at."""
    from tests.evals.suites.forward import checkpoint
    from tests.evals.suites.test_held_out import commit, git

    folder = bench.workspace.root / "code"
    folder.mkdir()
    git(folder, "init", "-b", "main")
    commit(folder, "2026-01-05", {"a.py": "x = 1\n"})
    commit(folder, "2026-03-05", {f"{name}.py": f"{name} = 2\n" for name in "bcdefghij"})
    checkpoint(bench.root / "made")  # a tokenizer beside the stub's shares
    live = bench.checkpoint(0.1, 0.2, None)
    for alias in ("live", "anchor"):
        bench.store.move_alias("auto", alias, live.digest, reason="test")
    bench.checkpoint(0.1, 0.2001, live.digest)
    settings = ['eval.suites=["perplexity:code"]', "eval.perplexity_since=2026-02-01"]
    with pytest.raises(UsageError, match="needs a date"):
        bench.eval(settings[:1])
    result = bench.eval(settings)
    report = result.outputs["report"]
    figure = report.meta["suites"]["perplexity:code"]["bits_per_byte"]
    assert (report.meta["verdict"], figure["baseline"]["cases"]) == ("pass", 9)
    # The stub gives 1.1 nats a token, a token a byte.
    assert figure["baseline"]["value"] == pytest.approx(1.1 / 0.6931, rel=1e-3)
    assert bench.eval(settings).run_id == result.run_id
    commit(folder, "2026-03-06", {"k.py": "k = 2\n"})
    assert bench.eval(settings).run_id != result.run_id


def test_the_verdict_can_be_computed_again_from_what_is_stored(bench: Bench) -> None:
    bench.checkpoint(0.6, 0.2, bench.live.digest)
    report = bench.eval(["eval.looks=2"]).outputs["report"]
    stored = json.loads((report.path / "verdict.json").read_text())
    (suite,) = build(bench.workspace.settings.eval, bench.workspace.root, {})
    spec = suite[1]
    arm = {row["role"]: files.read(report.path / row["file"], spec) for row in report.meta["attempts"]}
    look = Look(stored["rules"]["look"]["number"], stored["rules"]["look"]["planned"])
    rules = Rules(stored["rules"]["alpha"], stored["rules"]["infra_limit"], look)
    again = decide([(spec, (arm["candidate"], arm["baseline"]))], rules)
    told = json.loads(json.dumps(again.to_json()))
    assert {name: stored[name] for name in told} == told


def test_documents_larger_than_the_memory_are_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole(path: Path) -> bytes:
        pytest.fail(f"{path} was read at once")

    (tmp_path / "a.yaml").write_text("task: a\n")
    monkeypatch.setattr(Path, "read_bytes", whole)
    assert own_tasks.digests(tmp_path) == {"a.yaml": hashlib.sha256(b"task: a\n").hexdigest()}


def test_what_an_own_task_includes_from_elsewhere_is_part_of_it(tmp_path: Path) -> None:
    """The prompt stood there, and stored attempts were reused when it had become another."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "a.yaml").write_text("include: ../base.yaml\ntask: a\n")
    (tmp_path / "base.yaml").write_text("include: [more/most.yml, none.yaml]\ndoc_to_text: Q\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "most.yml").write_text("include: ../base.yaml\nprocess_docs: !function own.f\n")
    (tmp_path / "more" / "own.py").touch()
    found = own_tasks.digests(folder)
    elsewhere = {str(tmp_path / name) for name in ("base.yaml", "more/most.yml", "more/own.py")}
    assert set(found) == {"a.yaml", *elsewhere}
    (tmp_path / "base.yaml").write_text("doc_to_text: Question\n")
    assert own_tasks.digests(folder)[str(tmp_path / "base.yaml")] != found[str(tmp_path / "base.yaml")]
