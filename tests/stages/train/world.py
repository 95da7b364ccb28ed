"""A workspace whose live checkpoint is a tiny random model, and experiences of what it really sampled.

Artifacts are written by the data stages' own code (sealed payloads, Parquet schemas); rewards are
whatever the test says. `python -m tests.stages.train.world ROOT` runs `train` in a workspace made
before, for tests that kill it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from stages import modelio, schemas, tables
from stages.linestate import LineState
from stages.records import Generation, Payload, Sampling
from stages.registry.store import Store
from stages.result import StageResult
from stages.routing import packed
from stages.rows import SealedGeneration, generation_batch
from stages.runner import run_stage
from stages.spool.codec import encode, generation_aad
from stages.stage import Artifact, Output
from stages.train.run import STAGE
from stages.vault import Vault
from stages.workspace import Workspace
from tests.stages.train import naive
from tests.stages.train.sampled import Turn, sampled
from tests.stages.train.tiny import tiny_model, write_checkpoint

# micro-checkpoints are a third of what a run of a tiny model takes; see `steps_kept` of `conftest.py`
SETTINGS = (
    "[train]\nlearning_rate = 1e-3\nmin_episodes = 2\nthreads = 1\nmicro_batch_tokens = 256\n"
    "micro_checkpoints = 0\n"
)
SPEC = "sha256:" + "5" * 64


@dataclass
class Told:
    """One episode of an experience."""

    id: str
    reward: float | None
    turns: list[Turn]
    user: str = "ada"
    key: str = "k"
    stratum: str = "a"
    why_not: str = ""
    group: str = ""


@dataclass
class TrainWorld:
    """A workspace; `live` is the digest of its checkpoint."""

    root: Path
    settings: str = SETTINGS
    live: str = ""
    made: int = 0
    models: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        folder = self.root / "ws"
        new = not folder.exists()
        self.workspace = Workspace.create(folder, self.settings) if new else Workspace.find(folder)
        self.store = Store.open(self.workspace.store_dir)
        self.vault = Vault.create(self.workspace.keys_dir)
        if not new:
            self.live = self.store.resolve("checkpoint@live").digest
            self.made = len(list(self.root.glob("made-*"))) + len(list(self.root.glob("told-*")))
        else:
            self.live = self.checkpoint(seed=0).digest
            self.promote(self.live)
            self.store.move_alias("auto", "anchor", self.live, reason="test", by="test")

    def checkpoint(self, seed: int, parent: str | None = None, model: Any = None) -> Artifact:
        """Publish a tiny model of `seed`, with an empty line state."""
        self.made += 1
        folder = self.root / f"made-{self.made}"
        above = self.store.checkpoint_folder(self.store.resolve(parent)) if parent else None
        write_checkpoint(folder / "hf", seed, parent=above, model=model)
        LineState().save(folder / "state")
        generation = len(self.store.ancestors(parent)) + 1 if parent else 0
        meta = modelio.checkpoint_meta(folder / "hf", parent=parent, generation=generation)
        published = self.store.publish_external(
            {
                "checkpoint": (Output("checkpoint", meta), folder / "hf"),
                "line_state": (
                    Output("line_state", {"checkpoint": "output:checkpoint", "stage": "init"}),
                    folder / "state",
                ),
            },
            line="auto",
        )
        return published["checkpoint"]

    def promote(self, digest: str) -> None:
        self.store.move_alias("auto", "live", digest, reason="test", by="test")
        self.live = digest

    def model(self, digest: str) -> Any:
        if digest not in self.models:
            self.models[digest] = modelio.load_model(self.store.checkpoint_folder(self.store.resolve(digest)))
        return self.models[digest]

    def episodes(
        self,
        count: int,
        *,
        seed: int = 0,
        checkpoint: str = "",
        sampling: Sampling = naive.PLAIN,
        prefix: str = "e",
        turns: int = 1,
        engine: str = "",
    ) -> list[Told]:
        """`count` episodes really sampled from a checkpoint; reward: share of low ids in the answer.

        `engine` names what was done to the model before: episodes are kept for whoever asks the same again.
        """
        digest = checkpoint or self.live
        drawn = sampled(digest, seed, sampling, turns, engine)
        while len(drawn.turns) < count:
            drawn.more(self.model(digest))
        found = []
        for number, made in enumerate(deepcopy(drawn.turns[:count])):
            low = np.concatenate([turn.output < 32 for turn in made])
            told = Told(f"{prefix}{number}", float(np.mean(low)), made)
            told.user, told.stratum = f"u{number % 7}", "ab"[number % 2]
            found.append(told)
        return found

    def experience(self, told: Sequence[Told], state: LineState | None = None, own: str = "") -> Artifact:
        """Publish interactions of these episodes, the experience, and the line state it goes with.

        `own`: the digest of the source of a signal of the team's own that their rewards have a term of.
        """
        self.made += 1
        folder = self.root / f"told-{self.made}"
        interactions = self._interactions(told, folder / "interactions")
        self._experience(told, folder / "experience", interactions.digest)
        before = self.store.latest("line_state", "auto", where={"checkpoint": self.live})
        assert before is not None
        (state or LineState.load(before.path)).save(folder / "state", carry=before.path)
        published = self.store.publish_external(
            {
                "experience": (
                    Output(
                        "experience",
                        {
                            "schema": schemas.EXPERIENCE_SCHEMA,
                            "spec": SPEC,
                            "checkpoint": self.live,
                            "own": {"mine": {"function": "ours:mine", "digest": own}} if own else {},
                        },
                    ),
                    folder / "experience",
                ),
                "line_state": (
                    Output("line_state", {"checkpoint": self.live, "stage": "distill"}),
                    folder / "state",
                ),
            },
            line="auto",
            stage="distill",
        )
        return published["experience"]

    def _interactions(self, told: Sequence[Told], folder: Path) -> Artifact:
        generations: list[SealedGeneration] = []
        for episode in told:
            for n, turn in enumerate(episode.turns):
                before = episode.turns[n - 1]
                prefix = len(before.prompt) + len(before.output) if turn.extends else 0
                base = f"{episode.id}-g{n - 1}" if turn.extends else ""
                generation = Generation(
                    id=f"{episode.id}-g{n}", key_id=episode.key, user=episode.user, session=episode.id,
                    episode=episode.id, ordinal=n, at=n, wall=n, line="auto", arm="live", deployment="",
                    api="chat", sampling=turn.sampling, spans=turn.spans,
                    finish_reason="stop", prompt_tokens=len(turn.prompt), output_tokens=len(turn.output),
                    ttft_ms=1.0, duration_ms=2.0, prompt_base=base, prompt_prefix=prefix,
                )  # fmt: skip
                payload = Payload(
                    prompt=np.array(turn.prompt[prefix:], "<i4").tobytes(),
                    output=turn.output.astype("<i4").tobytes(),
                    logprobs=turn.logprobs.astype("<f4").tobytes(),
                    request="",
                    answer="",
                    experts=None if turn.experts is None else packed(turn.experts, max(prefix - 1, 0)),
                )
                aad = generation_aad(generation.id)
                sealed = self.vault.seal(episode.user, encode(payload), aad)
                generations.append(SealedGeneration(len(generations) + 1, generation, sealed))
        part = folder / schemas.part_name(0)
        tables.write(part / schemas.GENERATIONS_FILE, pa.Table.from_batches([generation_batch(generations)]))
        rows = [
            {name: 0 if pa.types.is_integer(kind.type) else "" for name, kind in _fields(schemas.EPISODES)}
            | {"id": episode.id, "user": episode.user, "n_generations": len(episode.turns)}
            for episode in told
        ]
        tables.write(part / schemas.EPISODES_FILE, pa.Table.from_pylist(rows, schema=schemas.EPISODES))
        output = Output("interactions", {"checkpoint": self.live})
        return self.store.publish_external({"interactions": (output, folder)}, line="auto", stage="collect")[
            "interactions"
        ]

    def _experience(self, told: Sequence[Told], folder: Path, interactions: str) -> None:
        schema = schemas.experience_episodes(())
        blank = {name: _blank(kind.type) for name, kind in _fields(schema)}
        rows = [
            blank
            | {
                "episode_id": episode.id,
                "user": episode.user,
                "key_id": episode.key,
                "stratum": episode.stratum,
                "group": episode.group,
                "reward": episode.reward,
                "trainable": not episode.why_not,
                "why_not": episode.why_not,
            }
            for episode in told
        ]
        tables.write(folder / schemas.EPISODES_FILE, pa.Table.from_pylist(rows, schema=schema))
        sequences = []
        for episode in told:
            chains: list[list[str]] = []
            for n, turn in enumerate(episode.turns):
                if not turn.extends:
                    chains.append([])
                chains[-1] += [f"{episode.id}-g{n}"] * turn.planned
            sequences += [
                {"episode_id": episode.id, "generation_ids": ids, "interactions": interactions}
                for ids in chains
                if ids
            ]
        table = pa.Table.from_pylist(sequences, schema=schemas.SEQUENCES)
        tables.write(folder / schemas.SEQUENCES_FILE, table)

    def train(self, *overrides: str, refs: Sequence[str] = (), **options: Any) -> StageResult:
        """Run `rtrl train` as the command would."""
        return run_stage(self.workspace, self.store, STAGE, refs, overrides, **options)

    def weights(self, result: StageResult) -> dict[str, torch.Tensor]:
        """The tensors of the checkpoint a run published."""
        return dict(modelio.tensors(self.store.checkpoint_folder(result.outputs["checkpoint"])))


def _fields(schema: pa.Schema) -> list[tuple[str, Any]]:
    return [(field.name, field) for field in schema]


def other_model(world: TrainWorld, seed: int, size: float = 0.05) -> Any:
    """The live model with noise of `size` on every weight: a near but different checkpoint."""
    model = tiny_model(0)
    model.load_state_dict(world.model(world.live).state_dict())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return model


if __name__ == "__main__":
    TrainWorld(Path(sys.argv[1])).train()


def _blank(kind: pa.DataType) -> object:
    return 0 if pa.types.is_integer(kind) else None if pa.types.is_floating(kind) else ""
