"""Data of a live checkpoint that newer data of it holds again, which gc need not keep.

While nothing is promoted each `collect` takes all that came since the live checkpoint once more: kept, all of
them would take the square of that time. Judged by what is on record, no file is read: what a newer collect by
the same rules left behind is unsettled, and so still in the spool, or never to be trained on. Not for: what
was collected from logs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from stages.registry.canonical import canonical
from stages.registry.models import ArtifactRow

_KINDS = ("interactions", "experience")
_RULES = ("schema", "checkpoint", "arm", "max_lag", "horizon_s", "metrics", "whose", "lost_events")


def superseded(rows: Mapping[int, ArtifactRow]) -> set[int]:
    """Ids of interactions that a newer one of the same line holds again, and of the experience of such, where
    the reward spec gave the newer one's as well."""
    newest_first = sorted(rows.items(), key=lambda item: item[1].version or 0, reverse=True)
    told = {row_id: json.loads(row.meta) for row_id, row in newest_first if row.kind in _KINDS}
    kept: dict[tuple[str, str], list[int]] = defaultdict(list)  # by line and rules
    successor: dict[str, str] = {}  # digests of interactions
    found = set()
    for row_id, row in newest_first:
        if row.kind != "interactions" or not told[row_id].get("checkpoint") or "window" not in told[row_id]:
            continue
        like = kept[row.line, _rules(told[row_id])]
        newer = next((one for one in like if _again(told[row_id], told[one])), None)
        if newer is None:
            like.append(row_id)
        else:
            found.add(row_id)
            successor[row.digest or ""] = rows[newer].digest or ""
    made: set[tuple[str, str, tuple[str, ...]]] = set()  # line, spec and interactions of newer experience
    for row_id, row in newest_first:
        if row.kind == "experience":
            about, of = told[row_id], tuple(told[row_id].get("interactions", ()))
            spec = str(about.get("spec"))
            again = tuple(successor.get(digest, "") for digest in of)
            if of and (row.line, spec, again) in made:
                found.add(row_id)
            made.add((row.line, spec, of))
    return found


def _rules(meta: Mapping[str, Any]) -> str:
    about = {name: meta.get(name) for name in _RULES}
    about["damaged"] = meta["window"].get("damaged")
    quarantined = meta.get("quarantined", {})  # what is wrong in itself was left out of each of them
    about["lost"] = {why: n for why, n in quarantined.items() if why.startswith("spool_")}
    about["repositories"] = "persistence" in meta
    return canonical(about, what="rules")


def _again(meta: Mapping[str, Any], newer: Mapping[str, Any]) -> bool:
    """Whether the newer window is of the same spool, goes as far, and is of no earlier instant."""
    one, other = meta["window"], newer["window"]
    return bool(
        other["first_seq"] <= one["resume_seq"]
        and other["last_seq"] >= one["last_seq"]
        and other["now"] >= one["now"]
    )
