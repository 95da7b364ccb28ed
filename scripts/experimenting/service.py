"""What a model call takes when it has the engine to itself: the constants of `edge.SERVICE`, measured.

Held-out requests are answered one at a time by the shipped model; seconds are fitted to fresh prompt tokens
and output tokens by least squares, without the slowest calls: on a shared machine they are the neighbours'.
To be run on a machine that does nothing else.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from cursorbench.harness.chat import ChatRequest
from evals.population.replay import heldout, replay
from experimenting.edge import SERVICE, Engine
from experimenting.heldout import PEOPLE

REQUESTS = 200
KEPT = 0.9  # of the calls, by how far they are above the fit


def calls(engine: Engine, requests: int) -> list[tuple[float, float, float]]:
    """(seconds, fresh prompt tokens, output tokens) of each model call."""
    known: defaultdict[str, int] = defaultdict(int)
    found: list[tuple[float, float, float]] = []

    def one_by_one(batch: list[ChatRequest]) -> Sequence[Mapping[str, Any] | None]:
        answers = []
        for request in batch:
            begun = time.perf_counter()
            answer = engine.chat([request])[0]
            seconds = time.perf_counter() - begun
            answers.append(answer)
            text = str(request.messages[1]["content"])
            prompt, output = int(answer["prompt_tokens"]), int(answer["output_tokens"])
            found.append((seconds, float(max(0, prompt - known[text])), float(output)))
            known[text] = prompt + output
        return answers

    replay(heldout(PEOPLE, requests), one_by_one)
    return found


def fit(measured: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Seconds a call, a fresh prompt token, an output token; none below 0."""
    table = np.array(measured)
    rows = np.column_stack([np.ones(len(table)), table[:, 1], table[:, 2]])
    found, _ = nnls(rows, table[:, 0])
    kept = np.argsort(table[:, 0] - rows @ found)[: max(3, int(KEPT * len(table)))]
    found, _ = nnls(rows[kept], table[kept, 0])
    return float(found[0]), float(found[1]), float(found[2])


def figures() -> list[dict[str, Any]]:
    """The three constants, beside those that stand in the code."""
    from stages.eval.run import start_engine
    from stages.init import init_tiny

    with tempfile.TemporaryDirectory(prefix="rtrl-service-") as folder:
        made = init_tiny(Path(folder) / "workspace")
        engine: Any = start_engine(made.workspace, made.checkpoint.path)
        try:
            measured = calls(engine, REQUESTS)
        finally:
            engine.close()
    names = {"call": "each call", "prompt": "each fresh prompt token", "output": "each output token"}
    return [
        {
            "id": f"service.{name}",
            "what": f"seconds of a model call alone on the engine, {what}",
            "value": value,
            "unit": "s",
            "bar": "",
            "ours": getattr(SERVICE, name),
            "runs": len(measured),
        }
        for (name, what), value in zip(names.items(), fit(measured), strict=True)
    ]
