"""What `rtrl train` shows people: the batch, the proof and the optimizer steps as tables.

Not for: what the figures mean (docs/train.md); `--json` has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rtrl_cli.output import table
from rtrl_cli.stage import default_text
from stages.wording import digits

if TYPE_CHECKING:
    from stages.result import StageResult

STEP_COLUMNS = {
    "step": "step",
    "episodes": "episodes",
    "tokens": "tokens",
    "loss": "loss",
    "grad_norm": "grad norm",
    "ratio_p01": "ratio p1",
    "ratio_p99": "ratio p99",
    "clipped": "clipped",
    "ess": "ess",
    "kl_parent": "kl parent",
    "kl_anchor": "kl anchor",
    "entropy": "entropy",
    "tokens_per_s": "tokens/s",
}
PROOF_COLUMNS = {"lag": "lag", "tokens": "tokens", "mean": "mean |d|", "p99": "p99 |d|", "largest": "largest"}


def train_text(result: StageResult) -> str:
    """Scalars as lines, then the tables that there are."""
    metrics = result.envelope()["metrics"]
    nested = ("batch", "proof", "optimizer_steps", "plan", "users_capped", "keys_capped")
    parts = [
        default_text(
            replace(result, metrics={key: value for key, value in metrics.items() if key not in nested})
        )
    ]
    plan = metrics.get("plan") or {}
    if checked := plan.get("import"):
        parts.append(import_text(checked))
    batch = metrics.get("batch") or plan.get("batch")
    if batch:
        parts += batch_tables(batch)
    if metrics.get("proof"):
        rows = [[ref, *_cells(figures, PROOF_COLUMNS)] for ref, figures in metrics["proof"].items()]
        parts.append("on-policy proof\n" + table(["sampler", *PROOF_COLUMNS.values()], rows))
    if metrics.get("optimizer_steps"):
        rows = [_cells(step, STEP_COLUMNS) for step in metrics["optimizer_steps"]]
        parts.append("optimizer steps\n" + table(list(STEP_COLUMNS.values()), rows))
    if metrics.get("users_capped"):
        parts.append("users at the cap\n" + table(["user", "factor"], _items(metrics["users_capped"])))
    if metrics.get("keys_capped"):
        parts.append("API keys at the cap\n" + table(["key", "factor"], _items(metrics["keys_capped"])))
    return "\n\n".join(parts)


def import_text(checked: Mapping[str, Any]) -> str:
    """What the folder holds, and what is to be known of it before it is imported, a line each."""
    known = {key.replace("_", " "): value for key, value in checked.items() if key != "said"}
    said = [["said", text] for text in checked["said"]]
    return "the folder\n" + table(["what", ""], [*known.items(), *said])


def batch_tables(batch: Mapping[str, Any]) -> list[str]:
    """The batch: totals, what was left out and why, and the strata."""
    totals = [
        ["episodes", batch["episodes"], "in the experience"],
        ["", batch["trained_episodes"], "trained on"],
        *(["", count, f"left out: {reason}"] for reason, count in batch["excluded_episodes"].items()),
        ["sequences", batch["sequences"], ""],
        ["tokens", batch["trained_tokens"], f"trained on, of {batch['context_tokens']} read"],
        *(["", count, f"masked: {reason}"] for reason, count in batch["masked_tokens"].items()),
        *(["", count, f"of lag {lag}"] for lag, count in batch.get("tokens_by_lag", {}).items()),
    ]
    if "users" in batch:
        totals.append(["users", batch["users"], f"largest share {batch['largest_user_share']:.1%}"])
    if "keys" in batch:
        totals.append(["API keys", batch["keys"], f"largest share {batch['largest_key_share']:.1%}"])
    shown = ["batch\n" + table(["what", "count", ""], totals)]
    if batch.get("strata"):
        rows = [[name, s["episodes"], _number(s["reward_mean"])] for name, s in batch["strata"].items()]
        shown.append(table(["stratum", "episodes", "mean reward"], rows))
    return shown


def _cells(figures: Mapping[str, Any], columns: Mapping[str, str]) -> list[str]:
    return [_number(figures.get(name)) for name in columns]


def _items(values: Mapping[str, Any]) -> list[list[str]]:
    return [[name, _number(value)] for name, value in values.items()]


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return digits(value) if isinstance(value, float) else f"{value:.0f}"
