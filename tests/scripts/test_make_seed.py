"""`scripts/make_seed.py`: what is kept of a phase, and when it stands in for training."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_seed.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script; its training adds one to every weight and says so."""
    spec = importlib.util.spec_from_file_location("make_seed", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "make_seed", module)  # its dataclasses look there
    spec.loader.exec_module(module)
    module.trained = 0

    def train(model: torch.nn.Module, *_: object) -> None:
        module.trained += 1
        with torch.no_grad():
            for value in model.parameters():
                value.add_(1.0)

    monkeypatch.setattr(module, "train_phase", train)
    return module


def weight_after(script: ModuleType, kept: Path) -> float:
    """What a weight of zero is when phase 0 is over."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    script._phase(model, script.Recipe(), 0, kept, list)
    return model.weight.item()


def test_a_phase_is_trained_once(script: ModuleType, tmp_path: Path) -> None:
    for _ in range(2):
        assert weight_after(script, tmp_path / "kept.pt") == 1.0
    assert script.trained == 1


def test_a_phase_that_was_killed_while_it_was_kept_is_trained_again(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", die)
        with pytest.raises(Killed):
            weight_after(script, tmp_path / "kept.pt")
    assert weight_after(script, tmp_path / "kept.pt") == 1.0
    assert script.trained == 2


def test_a_phase_is_kept_under_all_that_decides_it(script: ModuleType, tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    for folder in script.CODE:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("1")
    script.ROOT = tmp_path
    recipe = script.Recipe()
    names = [script.kept_name(recipe, 0, tokenizer)]
    later = replace(recipe, phases=(recipe.phases[0], replace(recipe.phases[1], steps=1)))
    assert [script.kept_name(later, 0, tokenizer)] == names, "phase 1 does not change what phase 0 ends with"
    names += [script.kept_name(one, 1, tokenizer) for one in (recipe, later)]
    for path in (tokenizer, *(tmp_path / folder / "a.py" for folder in script.CODE)):
        path.write_text("2")
        names.append(script.kept_name(recipe, 0, tokenizer))
    assert len(set(names)) == len(names)


def made_before(script: ModuleType, folder: Path, phases: int) -> Path:
    """A seed model's folder as the first phases leave it, told by an older recipe.json: no `dtype`."""
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    recipe = asdict(replace(script.Recipe(), phases=script.Recipe().phases[:phases]))
    for phase in recipe["phases"]:
        if phase["dtype"] == "bfloat16":
            del phase["dtype"]
    document = {"recipe": recipe, "seconds": 7, "sha256": {"model.safetensors": "ab"}}
    (folder / "recipe.json").write_text(json.dumps(document))
    return folder


def test_a_seed_model_of_the_first_phases_is_gone_on_with(script: ModuleType, tmp_path: Path) -> None:
    before = made_before(script, tmp_path / "before", 2)
    assert script.Earlier.of(before, script.Recipe(), before) == script.Earlier(2, 7, "ab")
    names = [script.kept_name(script.Recipe(), 2, before / "tokenizer.json", began) for began in ("", "ab")]
    assert names[0] != names[1], "what it began with decides what a phase ends with"


def test_one_of_another_recipe_or_tokenizer_is_not(script: ModuleType, tmp_path: Path) -> None:
    before = made_before(script, tmp_path / "before", 2)
    recipe = script.Recipe()
    shorter = replace(recipe, phases=(replace(recipe.phases[0], steps=1), *recipe.phases[1:]))
    for other in (shorter, script.Recipe(seed=1)):
        with pytest.raises(SystemExit, match="another recipe"):
            script.Earlier.of(before, other, before)
    (tmp_path / "tokenizer.json").write_text("{ }")
    with pytest.raises(SystemExit, match="another tokenizer"):
        script.Earlier.of(before, recipe, tmp_path)
