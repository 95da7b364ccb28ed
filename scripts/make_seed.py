"""Make the seed model: tokenizer, three phases of training, one bf16 file. Run once; the result is shipped.

Usage: python scripts/make_seed.py [--out FOLDER] [--work FOLDER] [--threads N] [--go-on FOLDER]

Writes config.json, model.safetensors (bfloat16), tokenizer.json, tokenizer_config.json,
chat_template.jinja, generation_config.json, and recipe.json with the recipe, the versions, the time it took
and the sha256 of each file. What a phase ends with is kept in the work folder: run again, it goes on after
the last phase for which nothing has changed: its part of the recipe, tokens, code, versions. Deterministic
on one machine; another processor adds up in another order and gives another model that behaves alike. Half
an hour on two cores that compute in bfloat16. With `--go-on FOLDER` it begins with the seed model there, made
by the first phases of this recipe, and recipe.json says so (`went_on_from`); so was the shipped one made.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import io
import json
import platform
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers
import torch
import transformers

from cursorbench.files import write_whole
from stages.modelio import load_model
from stages.seed.corpus import Encode, texts
from stages.seed.demonstrations import ASSORTED, Manner
from stages.seed.format import END, PAD
from stages.seed.pretrain import Phase, Recipe, batches_of, build_model, train_phase
from stages.seed.tokenizer import save_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_OUT = ROOT / "stages" / "seed" / "asset"
DEFAULT_WORK = ROOT / "build" / "seed"
CODE = ("stages/seed", "evals/population", "cursorbench/harness")  # what the demonstrations are made by


def main() -> None:
    """Parse, train, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--go-on", type=Path, help="a seed model that the first phases have made")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    recipe = Recipe()
    options.out.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(texts(recipe.seed, 4000, ASSORTED), recipe.vocabulary)
    save_tokenizer(tokenizer, options.out)
    vocabulary = tokenizer.get_vocab()
    model = build_model(recipe, vocabulary[END], vocabulary[PAD])
    earlier = Earlier.of(options.go_on, recipe, options.out) if options.go_on else Earlier(0, 0.0, "")
    if options.go_on:
        model.load_state_dict(load_model(options.go_on).state_dict())
    seconds = [
        _phase(
            model,
            recipe,
            number,
            options.work / kept_name(recipe, number, options.out / "tokenizer.json", earlier.weights),
            lambda lines: [one.ids for one in tokenizer.encode_batch(lines)],
        )
        for number in range(earlier.phases, len(recipe.phases))
    ]
    model.to(torch.bfloat16).save_pretrained(options.out)
    _write_recipe(options.out, recipe, earlier.seconds + sum(seconds), earlier.weights)


@dataclass(frozen=True)
class Earlier:
    """What a seed model that is gone on with was made by.

    Attributes:
        phases: so many of the recipe, the first ones.
        seconds: they took.
        weights: sha256 of the file with its weights.
    """

    phases: int
    seconds: float
    weights: str

    @classmethod
    def of(cls, folder: Path, recipe: Recipe, out: Path) -> Earlier:
        """Of the seed model in `folder`. Ends the program where `recipe` would not have come by it."""
        document = json.loads((folder / "recipe.json").read_bytes())
        made = document["recipe"]
        phases = tuple(Phase(**{**one, "manner": Manner(**one["manner"])}) for one in made["phases"])
        same = replace(recipe, phases=phases) == Recipe(**{**made, "phases": phases})
        if not same or phases != recipe.phases[: len(phases)]:
            sys.exit(f"{folder}: made by another recipe than the first phases of this one")
        if (folder / "tokenizer.json").read_bytes() != (out / "tokenizer.json").read_bytes():
            sys.exit(f"{folder}: it has another tokenizer than this recipe makes")
        return cls(len(phases), document["seconds"], document["sha256"]["model.safetensors"])


def kept_name(recipe: Recipe, number: int, tokenizer: Path, began_with: str = "") -> str:
    """The file of what phase `number` ends with, named for all that decides it."""
    so_far = dataclasses.asdict(dataclasses.replace(recipe, phases=recipe.phases[: number + 1]))
    total = hashlib.sha256(json.dumps([so_far, _versions(), began_with]).encode())
    for path in (tokenizer, *(path for folder in CODE for path in sorted((ROOT / folder).glob("*.py")))):
        total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return f"phase-{number}-{total.hexdigest()[:16]}.pt"


def _phase(model: PreTrainedModel, recipe: Recipe, number: int, kept: Path, encode: Encode) -> float:
    """Train one phase, or take what it ended with from the file `kept`. Returns the seconds it took."""
    if kept.exists():
        document = torch.load(kept, weights_only=True)
        model.load_state_dict(document["weights"])
        return float(document["seconds"])

    def report(step: int, loss: float, seconds: float) -> None:
        print(f"phase {number} step {step} loss {loss:.4f} {seconds:.0f} s", file=sys.stderr, flush=True)

    started = time.monotonic()
    phase = recipe.phases[number]
    train_phase(model, phase, batches_of(phase, recipe.seed + number, encode), report)
    seconds = time.monotonic() - started
    file = io.BytesIO()
    torch.save({"weights": model.state_dict(), "seconds": seconds}, file)
    write_whole(kept, file.getvalue())
    return seconds


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
    }


def _write_recipe(folder: Path, recipe: Recipe, seconds: float, began_with: str) -> None:
    """recipe.json: what the files beside it were made with, and their digests."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "recipe.json")
    document = {
        "schema": "rtrl-seed/1",
        "command": "python scripts/make_seed.py" + (" --go-on FOLDER" if began_with else ""),
        "went_on_from": began_with,
        "recipe": dataclasses.asdict(recipe),
        "versions": _versions(),
        "seconds": round(seconds),
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }
    (folder / "recipe.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
