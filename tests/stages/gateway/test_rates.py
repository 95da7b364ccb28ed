"""A key's rate: a token bucket by hand, and what a client is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.gateway.errors import ApiError
from stages.gateway.key_file import ApiKey
from stages.gateway.keys import ApiKeys
from stages.gateway.rates import Rates
from tests.stages.gateway.rig import Rig, running


def refusal(rates: Rates, key: ApiKey) -> ApiError | None:
    try:
        rates.take(key)
    except ApiError as error:
        return error
    return None


def test_a_bucket_by_hand() -> None:
    clock = [0.0]
    rates = Rates(0.5, 3, lambda: clock[0])
    key = ApiKey("key_a", "a", "", "")
    assert [refusal(rates, key) for _ in range(3)] == [None] * 3
    refused = refusal(rates, key)
    assert refused is not None
    assert (refused.status, refused.code, refused.retry_after) == (429, "rate_limit_exceeded", 2)
    clock[0] = 1.0
    refused = refusal(rates, key)
    assert refused is not None
    assert refused.retry_after == 1, "half a token is there"
    clock[0] = 2.0
    assert refusal(rates, key) is None
    assert refusal(rates, ApiKey("key_b", "b", "", "")) is None, "everyone has a bucket of their own"
    clock[0] = 1000.0
    assert [refusal(rates, key) is None for _ in range(4)] == [True] * 3 + [False], "no more than the burst"


def test_a_keys_own_rate_comes_first() -> None:
    rates = Rates(1.0, 1, lambda: 0.0)
    free = ApiKey("key_a", "a", "", "", rate=0.0)
    assert [refusal(rates, free) for _ in range(100)] == [None] * 100
    own = ApiKey("key_b", "b", "", "", rate=3.0)
    assert [refusal(rates, own) is None for _ in range(2)] == [True, False], (
        "the gateway's burst is not its own"
    )
    wide = ApiKey("key_c", "c", "", "", rate=3.0, burst=5)
    assert [refusal(rates, wide) is None for _ in range(6)] == [True] * 5 + [False]
    unset = Rates(0.0, 0, lambda: 0.0)
    assert [refusal(unset, ApiKey("key_d", "d", "", "", rate=3.0)) is None for _ in range(7)] == [
        True
    ] * 6 + [False]
    assert refusal(unset, ApiKey("key_e", "e", "", "")) is None, "no limit unless one is set"
    never = ApiKey("key_f", "f", "", "", rate=1e-310)
    refused = [refusal(unset, never) for _ in range(2)][1]
    assert refused is not None
    assert refused.retry_after == 10**9, "an infinite one was a bug (500)"


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/events", "/feedback", "/v1/models"])
async def test_a_client_is_told_when_to_come_again(rig: Rig, route: str) -> None:
    key = ApiKeys.create(rig.root / "keys", "slow", rate=0.01, burst=2)
    rig.gateway._keys._next_check = 0.0
    headers = {"authorization": f"Bearer {key}"}
    for _ in range(2):
        assert (await rig.http.get("/v1/models", headers=headers)).status_code == 200
    method = "GET" if route == "/v1/models" else "POST"
    answer = await rig.http.request(method, route, headers=headers, content=b"{}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(answer.headers["retry-after"]) == 100
    assert (await rig.http.get("/v1/models")).status_code == 200, "others are not slowed down"


async def test_the_gateways_rate_is_for_keys_without_one(tmp_path: Path) -> None:
    async with running(tmp_path, key_rate=0.01, key_burst=2) as rig:
        found = [(await rig.http.get("/v1/models")).status_code for _ in range(3)]
        assert found == [200, 200, 429]
        assert (await rig.http.get("/health")).status_code == 200, "which takes no key"
        free = {"authorization": f"Bearer {ApiKeys.create(tmp_path / 'keys', 'free', rate=0.0)}"}
        rig.gateway._keys._next_check = 0.0
        assert [(await rig.http.get("/v1/models", headers=free)).status_code for _ in range(5)] == [200] * 5
