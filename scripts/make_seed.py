"""Make the seed model: tokenizer, two phases of training, one bf16 file. Run once; the result is shipped.

Usage: python scripts/make_seed.py [--out FOLDER] [--threads N]

Writes config.json, model.safetensors (bfloat16), tokenizer.json, tokenizer_config.json,
chat_template.jinja, generation_config.json, and recipe.json with the recipe and the sha256 of each file.
Takes about an hour on two cores. The file that is shipped was made in two runs while this script was being
written: phase 0 with the code of commit a1c8ee5 (the same demonstrations, loss through a dense mask in
autocast, predicting the beginning at weight 0.1), phase 1 with `stages/seed/branches.py` as it is now
(generator "seed-lab", 12). Another run gives another model that behaves alike; the digests in recipe.json
name the one that is shipped. `--describe` writes recipe.json for files that are there already.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import platform
import sys
import time
from pathlib import Path

import tokenizers
import torch
import transformers

from stages.seed.corpus import texts
from stages.seed.demonstrations import Manner
from stages.seed.format import END, PAD
from stages.seed.pretrain import Recipe, batches_of, build_model, train_phase
from stages.seed.tokenizer import save_tokenizer, train_tokenizer

DEFAULT_OUT = Path(__file__).resolve().parent.parent / "stages" / "seed" / "asset"


def main() -> None:
    """Parse, train, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--describe", action="store_true", help="only write recipe.json")
    options = parser.parse_args()
    if options.describe:
        _write_recipe(options.out, Recipe(), 0.0)
        return
    torch.set_num_threads(options.threads)
    recipe = Recipe()
    started = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(texts(recipe.seed, 4000, Manner()), recipe.vocabulary)
    save_tokenizer(tokenizer, options.out)
    model = build_model(recipe, tokenizer.token_to_id(END), tokenizer.token_to_id(PAD))
    for number, phase in enumerate(recipe.phases):
        source = batches_of(
            phase, recipe.seed + number, lambda lines: [one.ids for one in tokenizer.encode_batch(lines)]
        )

        def report(step: int, loss: float, seconds: float, number: int = number) -> None:
            print(f"phase {number} step {step} loss {loss:.4f} {seconds:.0f} s", file=sys.stderr, flush=True)

        train_phase(model, phase, source, report)
    model.to(torch.bfloat16).save_pretrained(options.out)
    _write_recipe(options.out, recipe, time.monotonic() - started)


def _write_recipe(folder: Path, recipe: Recipe, seconds: float) -> None:
    """recipe.json: what the files beside it were made with, and their digests."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "recipe.json")
    document = {
        "schema": "rtrl-seed/1",
        "command": "python scripts/make_seed.py",
        "recipe": dataclasses.asdict(recipe),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "seconds": round(seconds),
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }
    (folder / "recipe.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
