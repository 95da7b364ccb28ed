"""What `rtrl train --explain` shows people: the episode's terms as lines, its tokens as a table.

Not for: what the terms mean (docs/train.md); `--json` has all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rtrl_cli.output import pairs, table
from stages.wording import digits

COLUMNS = {
    "at": "at",
    "text": "text",
    "lag": "lag",
    "logged": "logged",
    "logp": "now",
    "ratio": "ratio",
    "weight": "weight",
    "kl": "kl",
    "advantage": "advantage",
    "coefficient": "coefficient",
    "loss": "loss",
}


def explain_text(found: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """`found` is `stages.train.explain.Explanation.to_dict()`, `inputs` are references by role."""
    lines = {
        "episode": f"{found['episode_id']}  user {found['user']}  stratum {found['stratum']}"
        + (f"  group {found['group']}" if found["group"] else ""),
        "of": f"{inputs['experience']}  parent {inputs['parent']}  anchor {inputs['anchor']}",
        "advantage": f"{_number(found['advantage'])} = reward {_number(found['reward'])} "
        f"- baseline {_number(found['baseline'])}",
        "kl": f"{_number(found['kl'])} nats to the anchor, weighted, over its {found['tokens']} tokens",
        "coefficient": f"factor {_number(found['factor'])} x (advantage - price of the KL)",
        "loss": f"{_number(found['loss'])} = sum of -weight x coefficient x now, "
        f"over {_number(found['constant'])} tokens",
        "correction": found["correction"],
        "used in": f"optimizer step {found['optimizer_step']} of {found['optimizer_steps']}",
    }
    return "\n\n".join([pairs(lines), *(_sequence(each) for each in found["sequences"])])


def _sequence(found: Mapping[str, Any]) -> str:
    rows: list[list[object]] = []
    following = 0
    for token in found["tokens"]:
        if gap := token["at"] - following:
            rows.append([following, f"({gap} tokens of context)", *[""] * (len(COLUMNS) - 2)])
        following = token["at"] + 1
        cells = {name: _number(token[name]) for name in COLUMNS if name not in ("at", "text")}
        cells |= {"at": str(token["at"]), "text": json.dumps(token["text"], ensure_ascii=False)}
        if token["limited"]:
            cells["weight"] += "*"
        rows.append([cells[name] for name in COLUMNS])
    title = f"sequence of {', '.join(found['generations'])}"
    note = "* limited by the correction" if any(token["limited"] for token in found["tokens"]) else ""
    return "\n".join(filter(None, [title, table(list(COLUMNS.values()), rows), note]))


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return digits(value, 4) if isinstance(value, float) else str(value)
