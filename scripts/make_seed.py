"""Make the seed model: tokenizer, two phases of training, one bf16 file. Run once; the result is shipped.

Usage: python scripts/make_seed.py [--out FOLDER] [--work FOLDER] [--threads N]

Writes config.json, model.safetensors (bfloat16), tokenizer.json, tokenizer_config.json,
chat_template.jinja, generation_config.json, and recipe.json with the recipe, the versions, the time it took
and the sha256 of each file. What a phase ends with is kept in the work folder: run again, it goes on after
the last phase for which nothing has changed: its part of the recipe, tokens, code, versions. Deterministic
on one machine; another processor adds up in another order and gives another model that behaves alike. Half
an hour on two cores.
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
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers
import torch
import transformers

from stages.linestate import write_atomically
from stages.seed.corpus import Encode, texts
from stages.seed.demonstrations import ASSORTED
from stages.seed.format import END, PAD
from stages.seed.pretrain import Recipe, batches_of, build_model, train_phase
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
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    recipe = Recipe()
    options.out.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(texts(recipe.seed, 4000, ASSORTED), recipe.vocabulary)
    save_tokenizer(tokenizer, options.out)
    vocabulary = tokenizer.get_vocab()
    model = build_model(recipe, vocabulary[END], vocabulary[PAD])
    seconds = [
        _phase(
            model,
            recipe,
            number,
            options.work / kept_name(recipe, number, options.out / "tokenizer.json"),
            lambda lines: [one.ids for one in tokenizer.encode_batch(lines)],
        )
        for number in range(len(recipe.phases))
    ]
    model.to(torch.bfloat16).save_pretrained(options.out)
    _write_recipe(options.out, recipe, sum(seconds))


def kept_name(recipe: Recipe, number: int, tokenizer: Path) -> str:
    """The file of what phase `number` ends with, named for all that decides it."""
    so_far = dataclasses.asdict(dataclasses.replace(recipe, phases=recipe.phases[: number + 1]))
    total = hashlib.sha256(json.dumps([so_far, _versions()]).encode())
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
    write_atomically(kept, file.getvalue())
    return seconds


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
    }


def _write_recipe(folder: Path, recipe: Recipe, seconds: float) -> None:
    """recipe.json: what the files beside it were made with, and their digests."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "recipe.json")
    document = {
        "schema": "rtrl-seed/1",
        "command": "python scripts/make_seed.py",
        "recipe": dataclasses.asdict(recipe),
        "versions": _versions(),
        "seconds": round(seconds),
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }
    (folder / "recipe.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
