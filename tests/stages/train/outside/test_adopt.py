"""`rtrl train --import`: what is taken, what is refused and why, and that the gate takes it."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from stages import modelio, served_fingerprint
from stages.deploy.choose import default_candidate, objection
from stages.errors import GateRejectedError, InputMissingError, IntegrityError, UsageError
from stages.eval.run import STAGE as EVAL
from stages.forget.forget import forget
from stages.forget.holdings import NOT_TOLD
from stages.linestate import LineState
from stages.progress import Silent
from stages.result import StageResult
from stages.runner import run_stage
from stages.train.outside.handover import export_experience
from stages.train.outside.likeness import chat_template
from stages.train.run import STAGE
from tests.stages.train.strangers import TRAINED, stranger
from tests.stages.train.tiny import WORDS, tiny_model, write_checkpoint, write_tokenizer
from tests.stages.train.world import SPEC, TrainWorld, other_model
from tests.stages.world import consumed_episodes


@pytest.fixture
def folder(world: TrainWorld, tmp_path: Path) -> Path:
    """What a trainer of the user's wrote: the live model, moved a little, in bfloat16, with its tokenizer."""
    parent = world.store.resolve(world.live).path
    path = tmp_path / "theirs"
    modelio.save_checkpoint(other_model(world, seed=3), path, companions=parent, dtype="bfloat16")
    return path


def adopt(world: TrainWorld, folder: Path, *consumed: str, parent: str = "", **options: Any) -> StageResult:
    stage = copy.copy(STAGE)
    stage.import_dir, stage.consumed = folder, consumed
    stage.parent = parent or world.live
    return run_stage(world.workspace, world.store, stage, **options)


def edit(path: Path, change: Callable[[Any], None]) -> None:
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def test_baselines_are_of_one_source_of_a_teams_signals(world: TrainWorld, folder: Path) -> None:
    result = adopt(world, folder, world.experience(world.episodes(12), own="sha256:a").ref)
    ((name, table),) = LineState.load(result.outputs["line_state"].path).baselines.items()
    assert name != SPEC
    assert table["*"].weight == 12


def test_an_imported_checkpoint_is_a_child_like_any_other(world: TrainWorld, folder: Path) -> None:
    told = world.episodes(12)
    told[0].reward, told[1].why_not = None, "invalid_span"
    experience = world.experience(told)
    result = adopt(world, folder, experience.ref)
    child, state = result.outputs["checkpoint"], result.outputs["line_state"]
    assert result.status == "succeeded"
    assert (child.meta["parent"], child.meta["generation"]) == (world.live, 1)
    assert state.meta["checkpoint"] == child.digest

    # the weights are theirs, everything round them is the parent's
    parent = world.store.resolve(world.live).path
    theirs = load_file(folder / "model.safetensors")
    for name, value in world.weights(result).items():
        assert torch.equal(value, theirs[name].float())
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (child.path / name).read_bytes() == (parent / name).read_bytes()
    assert served_fingerprint.read_fingerprint(child.path)["logprobs"]["parent"] is not None
    assert 0.01 < result.metrics["probe_logprob_change"] < 5

    # what was consumed: only episodes that could be trained on, and their rewards are in the baseline
    assert consumed_episodes(state.path) == {episode.id for episode in told[2:]}
    table = LineState.load(state.path).baselines[SPEC]["*"]
    assert table.weight == 10
    assert table.value == pytest.approx(sum(e.reward or 0 for e in told[2:]) / 10)
    assert not (state.path / "optimizer.safetensors").exists()

    # the gate and the roll-out take it
    inputs = EVAL.resolve(world.workspace, world.store, {})
    assert inputs["candidate"].digest == child.digest
    assert default_candidate(world.store, "auto", world.store.resolve(world.live)).digest == child.digest
    assert isinstance(objection(child, inputs["baseline"], None), GateRejectedError)
    world.promote(child.digest)
    with pytest.raises(InputMissingError, match="consumed 10"):
        world.train(refs=[experience.ref])
    world.experience([*told, *world.episodes(6, seed=8, prefix="n")])
    assert world.train().metrics["batch"]["excluded_episodes"]["consumed"] == 10


def test_importing_twice_is_a_noop_wherever_the_folder_stands(
    world: TrainWorld, folder: Path, tmp_path: Path
) -> None:
    first = adopt(world, folder)
    again = adopt(world, Path(shutil.copytree(folder, tmp_path / "copy")))
    assert (again.status, again.run_id) == ("noop", first.run_id)
    assert any("nothing is stated as consumed" in warning for warning in first.warnings)
    forced = adopt(world, folder, force=True)
    assert forced.outputs["checkpoint"].digest == first.outputs["checkpoint"].digest


def test_dry_run_checks_everything_and_writes_nothing(world: TrainWorld, folder: Path) -> None:
    experience = world.experience(world.episodes(5))
    plan = adopt(world, folder, experience.ref, dry_run=True).metrics["plan"]["import"]
    assert (plan["dtype"], plan["consumed_episodes"]) == ("bfloat16", 5)
    assert plan["parameters"] == sum(p.numel() for p in world.model(world.live).parameters())
    assert world.store.latest("checkpoint").digest == world.live  # type: ignore[union-attr]
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(IntegrityError, match="not finite in 1 of"):
        adopt(world, folder, dry_run=True)


def test_a_repeated_import_wants_its_folder_and_the_same_one(world: TrainWorld, folder: Path) -> None:
    first = adopt(world, folder)
    with pytest.raises(UsageError, match="imported a folder"):
        world.train(from_run=first.run_id)
    again = adopt(world, folder, from_run=first.run_id)
    assert again.outputs["checkpoint"].digest == first.outputs["checkpoint"].digest
    edit(folder / "config.json", lambda config: config.update(note="touched"))
    with pytest.raises(IntegrityError, match="not what it was"):
        adopt(world, folder, from_run=first.run_id)


def test_what_was_consumed_before_is_said(world: TrainWorld, folder: Path) -> None:
    experience = world.experience(world.episodes(6))
    child = adopt(world, folder, experience.ref).outputs["checkpoint"]
    weights = {name: value + 0.01 for name, value in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors")
    second = adopt(world, folder, experience.ref, parent=child.digest)
    assert second.metrics["consumed_before"] == 6
    assert any("6 of 6 consumed episodes" in warning for warning in second.warnings)


def test_rounded_exports_carry_the_imported_weights_as_masters(world: TrainWorld, folder: Path) -> None:
    model = other_model(world, seed=4)
    modelio.save_checkpoint(model, folder, companions=folder, dtype="float32")
    result = adopt(world, folder, overrides=["train.export_dtype=bfloat16"])
    assert result.outputs["checkpoint"].meta["dtype"] == "bfloat16"
    masters = load_file(result.outputs["line_state"].path / "masters.safetensors")
    for name, value in model.named_parameters():
        assert torch.equal(masters[name], value)


def test_flags_that_do_not_belong_together_are_usage_errors(world: TrainWorld, folder: Path) -> None:
    stage = copy.copy(STAGE)
    stage.import_dir = folder
    with pytest.raises(UsageError, match="needs --parent"):
        run_stage(world.workspace, world.store, stage)
    with pytest.raises(UsageError, match="reads a folder"):
        adopt(world, folder, refs=["checkpoint@live"])
    stage = copy.copy(STAGE)
    stage.parent = "checkpoint@live"
    with pytest.raises(UsageError, match="belong to --import"):
        run_stage(world.workspace, world.store, stage)
    experience = world.experience(world.episodes(2))
    with pytest.raises(UsageError, match="is of kind experience"):
        adopt(world, folder, parent=experience.ref)
    with pytest.raises(UsageError, match="is of kind checkpoint"):
        adopt(world, folder, "checkpoint@v1")


def test_folders_that_are_no_whole_model_are_missing_inputs(world: TrainWorld, tmp_path: Path) -> None:
    cases: dict[str, tuple[str, str]] = {
        "adapter_config.json": ("{}", "LoRA adapter"),
        "pytorch_model.bin": ("x", "pickled weights"),
        "fsdp_config.json": ("{}", "sharded training state"),
        "config.json": ("{}", "no model.safetensors"),
        "README.md": ("", "no config.json"),
    }
    with pytest.raises(InputMissingError, match="there is no folder") as caught:
        adopt(world, tmp_path / "nowhere")
    assert caught.value.code == 5
    for name, (text, message) in cases.items():
        path = tmp_path / name.replace(".", "-")
        path.mkdir()
        (path / name).write_text(text)
        with pytest.raises(InputMissingError, match=message):
            adopt(world, path)
    with pytest.raises(InputMissingError, match="there is no checkpoint@v9"):
        adopt(world, tmp_path, parent="checkpoint@v9")


def test_another_tokenizer_or_template_is_refused_with_the_first_difference(
    world: TrainWorld, folder: Path
) -> None:
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}

    def restore() -> None:
        for name, content in kept.items():
            (folder / name).write_bytes(content)

    write_tokenizer(folder, [*WORDS[:10], WORDS[11], WORDS[10], *WORDS[12:]])
    with pytest.raises(IntegrityError, match=r"token 'w[67]' is id 1[01], not id 1[01]"):
        adopt(world, folder)
    restore()
    edit(folder / "tokenizer.json", lambda one: one["added_tokens"].pop())
    edit(folder / "tokenizer_config.json", lambda one: one.update(extra_special_tokens=[]))
    with pytest.raises(IntegrityError, match="added_tokens"):
        adopt(world, folder)
    restore()
    edit(folder / "tokenizer_config.json", lambda one: one.update(eos_token="<user>"))
    with pytest.raises(IntegrityError, match="eos_token is '<user>'"):
        adopt(world, folder)
    restore()
    (folder / "chat_template.jinja").write_text("{{ messages }}\n")
    with pytest.raises(IntegrityError, match=r"chat template .* line 1 is '\{\{ messages"):
        adopt(world, folder)
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(IntegrityError, match="no text in UTF-8"):
        adopt(world, folder)
    restore()
    edit(folder / "tokenizer.json", lambda one: one["model"].update(vocab=5))
    with pytest.raises(IntegrityError, match=r"vocabulary of tokenizer\.json is '5'"):
        adopt(world, folder)
    restore()

    # what trainers do write: truncation and padding left in, another pad token, the template inline
    edit(folder / "tokenizer.json", lambda one: one.update(truncation={"max_length": 9}, padding=None))
    template = chat_template(folder)
    (folder / "chat_template.jinja").unlink()
    change = {"pad_token": "<end>", "chat_template": template}
    edit(folder / "tokenizer_config.json", lambda one: one.update(change))
    assert adopt(world, folder).status == "succeeded"


def test_a_folder_without_tokenizer_gets_the_parents(world: TrainWorld, folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).unlink()
    result = adopt(world, folder)
    assert any("holds no tokenizer" in warning for warning in result.warnings)
    assert any("holds no chat template" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 80}, "vocab_size 80, not 64"),
        ({"num_hidden_layers": 1}, "num_hidden_layers 1, not 2"),
        ({"rms_norm_eps": 1e-3}, "rms_norm_eps"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
    ],
)
def test_another_architecture_is_refused(
    world: TrainWorld, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    folder = write_checkpoint(tmp_path / "other", model=tiny_model(1, **change))
    with pytest.raises(IntegrityError, match=message) as caught:
        adopt(world, folder)
    assert caught.value.code == 12


def test_another_class_and_a_shorter_model_are_refused(world: TrainWorld, folder: Path) -> None:
    edit(folder / "config.json", lambda one: one.update(architectures=["Qwen2ForTokenClassification"]))
    with pytest.raises(IntegrityError, match="is a Qwen2ForTokenClassification"):
        adopt(world, folder)
    edit(
        folder / "config.json",
        lambda one: one.update(architectures=["Qwen2ForCausalLM"], max_position_embeddings=128),
    )
    with pytest.raises(IntegrityError, match="made for 128 tokens"):
        adopt(world, folder, overrides=["engine.max_model_len=256"])
    result = adopt(world, folder, overrides=["engine.max_model_len=128"])
    assert any("max_position_embeddings is 128; the parent's 256 is kept" in w for w in result.warnings)


def test_torn_foreign_and_unchanged_weights_are_refused(world: TrainWorld, folder: Path) -> None:
    good = load_file(folder / "model.safetensors")
    path = folder / "model.safetensors"
    save_file({**good, "v_head.weight": torch.zeros(2)}, path)
    with pytest.raises(IntegrityError, match="unexpected keys"):
        adopt(world, folder)
    save_file({name: value for name, value in good.items() if name != "lm_head.weight"}, path)
    with pytest.raises(IntegrityError, match="missing keys"):
        adopt(world, folder)
    save_file({**good, "lm_head.weight": torch.zeros(3, 3)}, path)
    with pytest.raises(IntegrityError):
        adopt(world, folder)
    save_file({**good, "lm_head.weight": torch.zeros(64, 32, dtype=torch.int8)}, path)
    with pytest.raises(IntegrityError, match=r"is torch\.int8"):
        adopt(world, folder)
    save_file({**good, "lm_head.weight": good["lm_head.weight"].to(torch.float8_e4m3fn)}, path)
    with pytest.raises(IntegrityError, match=r"is torch\.float8_e4m3fn"):
        adopt(world, folder)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(IntegrityError, match="damaged"):
        adopt(world, folder)
    shutil.copyfile(world.store.resolve(world.live).path / "model.safetensors", path)
    with pytest.raises(UsageError, match="nothing was trained"):
        adopt(world, folder)


@pytest.mark.parametrize("name", ["llama-tied", "gpt2"])  # an embedding has as many names as there are models
def test_an_untied_head_under_a_tied_parent_is_refused(world: TrainWorld, tmp_path: Path, name: str) -> None:
    tied = world.checkpoint(1, parent=world.live, model=stranger(*TRAINED[name]))
    folder = tmp_path / "tied"
    model = stranger(*TRAINED[name], seed=4)
    modelio.save_checkpoint(model, folder, companions=tied.path, dtype="float32")
    weights = load_file(folder / "model.safetensors")
    (embedding,) = (one for one in weights if one.endswith(("embed_tokens.weight", "wte.weight")))
    save_file({**weights, "lm_head.weight": weights[embedding] + 1}, folder / "model.safetensors")
    with pytest.raises(IntegrityError, match="output head of its own"):
        adopt(world, folder, parent=tied.digest)
    save_file({**weights, "lm_head.weight": weights[embedding].clone()}, folder / "model.safetensors")
    assert adopt(world, folder, parent=tied.digest).status == "succeeded"


def test_forgetting_lists_an_import_by_what_it_consumed(world: TrainWorld, folder: Path) -> None:
    experience = world.experience(world.episodes(14))
    child = adopt(world, folder, experience.ref).outputs["checkpoint"]
    held = forget(world.workspace, world.store, "u3", by="test", dry_run=True).holdings
    assert [(one.digest, one.episodes) for one in held.checkpoints] == [(child.digest, 2)]


@pytest.mark.parametrize("year", [1990, 2990])
def test_an_import_that_states_nothing_may_have_had_what_was_exported(
    world: TrainWorld, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, year: int
) -> None:
    """What was exported before it no clock tells: it was set between the two."""
    before = adopt(world, folder).outputs["checkpoint"]
    world.experience(world.episodes(3))
    with monkeypatch.context() as clock:
        clock.setattr("stages.registry.states.now", lambda: f"{year}-01-01T00:00:00.000000Z")
        export_experience(
            world.workspace, world.store, "experience@latest", "trl", out=tmp_path / "out",
            parent="checkpoint@live", by="test", progress=Silent(),
        )  # fmt: skip
    model = other_model(world, seed=9)
    modelio.save_checkpoint(model, folder, companions=folder, dtype="float32")
    child = adopt(world, folder).outputs["checkpoint"]
    learned = forget(world.workspace, world.store, "u1", by="test", dry_run=True).holdings.checkpoints
    assert [(one.digest, one.episodes, one.note) for one in learned] == [(child.digest, None, NOT_TOLD)]
    assert before.digest != child.digest
    assert forget(world.workspace, world.store, "u2", by="test", dry_run=True).holdings.exports
