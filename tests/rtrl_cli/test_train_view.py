"""What `rtrl train` prints for people."""

from __future__ import annotations

from rtrl_cli.train_view import train_text
from stages.result import StageResult

BATCH = {
    "episodes": 12,
    "trained_episodes": 9,
    "excluded_episodes": {"consumed": 2, "lag": 1},
    "sequences": 10,
    "trained_tokens": 321,
    "context_tokens": 1500,
    "masked_tokens": {"greedy": 4},
    "users": 3,
    "largest_user_share": 0.5,
    "keys": 4,
    "largest_key_share": 0.75,
    "strata": {"rename": {"episodes": 9, "reward_mean": 0.25}},
    "tokens_by_lag": {"0": 300, "1": 21},
}


def test_a_run_is_shown_with_its_batch_proof_and_steps() -> None:
    step = {"step": 1, "loss": -0.0123456, "ess": 0.99, "kl_anchor": None, "tokens_per_s": 12345.6}
    metrics = {
        "batch": BATCH,
        "proof": {"checkpoint@v1": {"lag": 0, "tokens": 321, "mean": 1.234e-6}},
        "optimizer_steps": [step],
        "users_capped": {"loud": 0.25},
        "keys_capped": {"k_ci": 0.125},
        "grad_norm": 1.5,
    }
    text = train_text(StageResult("train", "succeeded", metrics=metrics))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "grad_norm 1.5" in lines
    assert "9 trained on" in lines
    assert "2 left out: consumed" in lines
    assert "tokens 321 trained on, of 1500 read" in lines
    assert "4 masked: greedy" in lines
    assert "users 3 largest share 50.0%" in lines
    assert "rename 9 0.25" in lines
    assert "checkpoint@v1 0 321 1.23e-06 - -" in lines
    assert "1 - - -0.0123 - - - - 0.99 - - - 12346" in lines
    assert "loud 0.25" in lines
    assert "API keys 4 largest share 75.0%" in lines
    assert "k_ci 0.125" in lines


def test_a_dry_run_shows_the_batch() -> None:
    text = train_text(StageResult("train", "noop", metrics={"dry_run": True, "plan": {"batch": BATCH}}))
    assert "left out: lag" in text
    assert "optimizer steps" not in text


def test_a_dry_import_says_what_was_found_and_what_is_to_be_known() -> None:
    found = {
        "tensors": 51,
        "dtype": "bfloat16",
        "consumed_episodes": 0,
        "said": ["no template", "no --consumed"],
    }
    text = train_text(StageResult("train", "noop", metrics={"plan": {"import": found}}))
    rows = [line.split(maxsplit=1) for line in text.splitlines()]
    for row in (["tensors", "51"], ["said", "no template"], ["said", "no --consumed"]):
        assert row in rows
