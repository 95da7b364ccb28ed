"""Router replay: a mixture-of-experts model runs the experts that the engine ran when it sampled.

With K_t the top_k experts the engine's router chose for token t, and s_t the router's logits *now*,

    out_t = sum over i in K_t: g_{t,i} E_i(x_t),    g_t = the router's own weights of K_t out of s_t
                                                        (e.g. softmax(s_t) over K_t)

Only the choice is replayed: the weights are computed from today's logits, so the gradient reaches the
router through them. Every pass of a run replays (sampler, parent, anchor, policy), so that logprobs
differ by weights and not by which experts happened to run. Tokens whose routing is not known go where
the router sends them. A decision is one expert that one layer chose for one token; it differs when the
router would not have chosen that expert now.

How: before a decoder layer runs it hands the pack's replay to its router, and the one `topk` in the
router's own forward gives the recorded experts and their values. It works again when the layer is
computed again for its gradient, in every copy of a model and every thread.

No auxiliary loss that balances the experts' load is added: the objective is the reward's alone.

Source: Ma et al. 2025 (rollout routing replay), arXiv 2510.11370. Not here: how routing is captured
and kept (`stages/routing.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from stages.errors import IntegrityError, UsageError
from stages.routing import Routing

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stages.train.batch import Row

_ROUTER = re.compile(r"Top[kK]Router$")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)$")
_ATTACHED = "_rtrl_routers"  # of a model: which router is of which layer; hooks are in place
_NOW = "_rtrl_replay"  # of a router: (replay, layer) of the pass that runs


@dataclass
class Decisions:
    """How many routing decisions were replayed, and how many of them the router would now make otherwise."""

    replayed: int = 0
    differed: int = 0

    def add(self, other: Decisions) -> None:
        """Count these too."""
        self.replayed += other.replayed
        self.differed += other.differed


@dataclass(frozen=True)
class Replay:
    """The experts of the N tokens of a pack.

    Attributes:
        experts: [N, layers, top_k] int32.
        known: [N, layers] bool; elsewhere tokens go where the router sends them.
        counted: filled by the passes: layer -> (replayed, differing) decisions as tensors.
    """

    experts: Tensor
    known: Tensor
    counted: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def to(self, device: torch.device | str) -> Replay:
        """The same with its tensors on `device`."""
        return Replay(self.experts.to(device), self.known.to(device))


def replay_of(
    routings: Sequence[Routing | None], cells: Sequence[NDArray[np.int64]], tokens: int
) -> Replay | None:
    """That of a pack of `tokens` tokens, each sequence's at its `cells`; None when nothing is known.

    Raises IntegrityError when the sequences' routing is of different shapes.
    """
    shapes = {each.experts.shape[1:] for each in routings if each is not None}
    if not shapes:
        return None
    if len(shapes) > 1:
        raise IntegrityError(
            f"the batch has routed experts of different shapes (layers, choices): {sorted(shapes)}",
            hint="they are of different models; collect again from the live checkpoint",
        )
    experts = np.zeros((tokens, *shapes.pop()), np.int32)
    known = np.zeros(tokens, np.bool_)
    for each, where in zip(routings, cells, strict=True):
        if each is not None:
            experts[where], known[where] = each.experts, each.known
    ordered = np.sort(experts, axis=-1)
    choices = (ordered[..., 1:] != ordered[..., :-1]).all(-1)  # the same expert twice is no choice of top_k
    return Replay(torch.from_numpy(experts), torch.from_numpy(known[:, None] & choices))


def decisions_of(replay: Replay | None) -> Decisions:
    """What the passes with `replay` have counted, over the tokens of the pack."""
    found = Decisions()
    for replayed, differed in replay.counted.values() if replay else ():
        found.add(Decisions(int(replayed), int(differed)))
    return found


def routers(model: nn.Module) -> dict[str, int]:
    """Names of the model's routers and the indices of their layers, in order; empty for a dense model."""
    found = {}
    for name, module in model.named_modules():
        if _ROUTER.search(type(module).__name__):
            layer = _layer_of(name)
            if layer is not None:
                found[name] = int(layer.rpartition(".")[2])
    return found


def _layer_of(name: str) -> str | None:
    """The name of the decoder layer that holds the module of this name."""
    parts = name.split(".")
    return next((n for i in range(len(parts)) if _LAYER.search(n := ".".join(parts[: i + 1]))), None)


def attach(model: PreTrainedModel, replay: Replay | None) -> None:
    """Let `model` follow the replay of the packs it is given. Once attached, nothing is done again.

    A model without routers has nothing to follow. Raises IntegrityError when `replay` is of another
    architecture.
    """
    known: dict[str, int] | None = getattr(model, _ATTACHED, None)
    if known is None:
        known = routers(model)
        for name in known:
            layer = _layer_of(name) or ""
            inner = name.removeprefix(layer + ".")
            hook = partial(_hand_over, inner=inner, index=known[name])
            model.get_submodule(layer).register_forward_pre_hook(hook, with_kwargs=True)
            model.get_submodule(name).register_forward_hook(_replayed)
        setattr(model, _ATTACHED, known)
    if known and replay is not None:
        _check(model, known, replay)


def _check(model: PreTrainedModel, known: Mapping[str, int], replay: Replay) -> None:
    """Raises IntegrityError when `replay` cannot be of this architecture."""
    router: Any = model.get_submodule(next(iter(known)))
    layers = int(model.config.get_text_config().num_hidden_layers)
    shape, wanted = tuple(replay.experts.shape[1:]), (layers, int(router.top_k))
    largest = int(replay.experts[:, sorted(known.values())].max()) if shape == wanted else 0
    if shape != wanted or largest >= router.num_experts:
        raise IntegrityError(
            f"the routed experts are of {shape[0]} layers, {shape[1]} choices, ids up to {largest}; "
            f"the model has {wanted[0]}, {wanted[1]} and {router.num_experts} experts",
            hint="they are another model's: collect again from the live checkpoint",
        )


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _hand_over(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, inner: str, index: int
) -> None:
    """Before a decoder layer: its router learns which experts this pass replays, or that it replays none."""
    replay = getattr(kwargs.get("pack"), "replay", None)
    setattr(module.get_submodule(inner), _NOW, None if replay is None else (replay, index))


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _replayed(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    """After a router: its output again, with the experts of the replay."""
    now: tuple[Replay, int] | None = getattr(module, _NOW, None)
    if now is None:
        return output
    replay, index = now
    with _Choice(replay.experts[:, index].long(), replay.known[:, index], int(module.num_experts)) as choice:
        again = module.forward(*args)
    if choice.taken != 1:
        raise UsageError(
            f"{type(module).__name__} does not choose experts by one topk: its routing cannot be replayed",
            hint="train.router_replay = false trains without",
        )
    replay.counted[index] = choice.decisions
    return again


class _Choice(TorchFunctionMode):  # type: ignore[misc]
    """Inside, a router's `topk` over all experts takes those of `chosen` [N, top_k] where `known` [N]."""

    def __init__(self, chosen: Tensor, known: Tensor, experts: int) -> None:
        super().__init__()
        self.chosen, self.known, self.experts = chosen, known, experts
        self.taken = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if func not in (torch.topk, Tensor.topk):
            return found
        values, own = args[0], found.indices
        if values.shape[-1] != self.experts or own.shape != self.chosen.shape:
            return found
        self.taken += 1
        known = self.known[:, None]
        chosen = torch.where(known, self.chosen, own)
        missing = ~(chosen[:, :, None] == own[:, None, :]).any(-1)
        self.decisions = (self.known.sum() * chosen.shape[1], missing.sum())
        return torch.return_types.topk((values.gather(-1, chosen), chosen))


def figures(parts: Sequence[Decisions]) -> dict[str, int]:
    """Of a step's micro-batches, for logs and metrics; empty when nothing was replayed."""
    replayed = sum(part.replayed for part in parts)
    if not replayed:
        return {}
    return {"routing_decisions": replayed, "routing_differed": sum(part.differed for part in parts)}


def report(model: nn.Module, rows: Sequence[Row], decisions: Decisions) -> dict[str, Any]:
    """What log and result say of the replay, as the parent's pass counted it; {} for a dense model."""
    if not routers(model):
        return {}
    known = sum(int(row.routing.known[:-1].sum()) for row in rows if row.routing)
    return {
        "sequences": len(rows),
        "replayed_sequences": sum(row.routing is not None for row in rows),
        "tokens": sum(len(row.token_ids) - 1 for row in rows),
        "replayed_tokens": known,
        "decisions": decisions.replayed,
        "differed": decisions.differed,
    }


def warnings(found: Mapping[str, Any]) -> list[str]:
    """What the result of a run warns of, given its `report`."""
    count, of = found.get("replayed_sequences"), found.get("sequences")
    if count == of:
        return []
    what = "was not replayed" if not count else f"was replayed for {count} of {of} sequences only"
    return [
        f"routing {what}: where the experience tells no routed experts (or train.router_replay is off), "
        "routers choose anew, and logprobs differ by it"
    ]
