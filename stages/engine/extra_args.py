"""Arguments of vLLM's that `engine.extra_args` may not hold: vLLM takes the last of two, and what rtrl says
first would be undone without a word. Import-light. Not for: the command line (`process.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

_TEXTS = "users' texts would stand in the engine's log"
_APART = "thoughts and calls are taken out of the text that was sampled, by the gateway"
_SAMPLED = "a request is sampled as is recorded of it, and by nothing else"
_REFUSED = {
    "--model": "the checkpoint that is live is served",
    "--served-model-name": "set engine.served_name",
    "--dtype": "set engine.dtype",
    "--max-model-len": "set engine.max_model_len",
    "--logprobs-mode": "training needs the logprobs of the distribution that was sampled from",
    "--generation-config": _SAMPLED,
    "--override-generation-config": _SAMPLED,
    "--logits-processors": _SAMPLED,
    "--reasoning-parser": _APART,
    "--exclude-tools-when-tool-choice-none": _APART,
    "--return-tokens-as-token-ids": _APART,
    "--structured-outputs-config": "grammars are XGrammar's, those that force calls among them",
    "--structured-outputs-config.backend": "grammars are XGrammar's, those that force calls among them",
    "--worker-extension-cls": "weights are replaced and verified by rtrl's",
    "--enable-log-requests": _TEXTS,
    "--enable-log-outputs": _TEXTS,
    "--log-error-stack": _TEXTS,
}


def name_of(argument: str) -> str:
    """The option that an argument is, as vLLM reads it: `_` is `-`, a value may follow "="."""
    return argument.split("=", maxsplit=1)[0].replace("_", "-")


def drafting(arguments: Sequence[str]) -> bool:
    """Whether they have vLLM draft tokens: `--speculative-config`, `-sc`, `--spec-method`."""
    return any(
        name.startswith("-sc") or (name.startswith("--spec") and not name.startswith("--speci"))
        for name in map(name_of, arguments)
    )


def refused(arguments: Sequence[str]) -> str:
    """Why these may not be there, "" where they may. Beginnings of names are those names to vLLM."""
    for name in map(name_of, arguments):
        for whole, why in _REFUSED.items():
            if len(name) > len("--") and name.startswith("--") and whole.startswith(name):
                return f"extra_args has {name}: {why}"
    return ""
