"""`scripts/make_seed.py`: what is kept of a phase, and when it stands in for training."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
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
