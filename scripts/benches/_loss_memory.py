"""Peak memory of the loss, forward and backward: `_loss_memory.py naive|blocks TOKENS VOCABULARY`.

Prints the growth of the resident memory's peak in bytes, hidden states and output head not counted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from stages.records import Sampling
from stages.train.config import TrainConfig
from stages.train.logprobs import rows_within, token_logprobs
from stages.train.sampling import Processing

HIDDEN = 256


def resident(line: str) -> int:
    """A line of /proc/self/status in bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(x.split()[1]) * 1024 for x in status.splitlines() if x.startswith(f"{line}:"))


def main() -> None:
    """Measure one way."""
    way, tokens, vocabulary = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(0)
    head = torch.nn.Linear(HIDDEN, vocabulary, bias=False)
    hidden = torch.randn(tokens, HIDDEN, requires_grad=True)
    targets = torch.randint(0, vocabulary, (tokens,))
    head.weight.grad, hidden.grad = torch.zeros_like(head.weight), torch.zeros_like(hidden)
    processing = Processing.of([Sampling()] * tokens)
    (head(hidden[:64]).logsumexp(-1).sum() * 0).backward()  # what torch loads at first use
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the peak so far
    before = resident("VmRSS")
    if way == "naive":
        logp = head(hidden).float().log_softmax(-1).gather(1, targets[:, None])[:, 0]
    else:
        rows = rows_within(TrainConfig().logits_mib, vocabulary)
        logp, _ = token_logprobs(hidden, targets, head, processing, block_rows=rows)
    (-logp.mean()).backward()
    print(resident("VmHWM") - before, float(logp.detach().mean()), float(hidden.grad.norm()))


if __name__ == "__main__":
    main()
