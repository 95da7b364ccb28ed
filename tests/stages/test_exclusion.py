"""The audit on made columns: what is sure stays sure, however much is looked at."""

from __future__ import annotations

import numpy as np

from stages.exclusion import audit, warnings


def test_many_values_and_exits_hide_no_difference() -> None:
    """Three exits of the infrastructure take 60 of 1,500 episodes each, by chance but for one value of one.

    20 values: 60 tests, so that what 1,999 draws alone can say (1 in 2,000) would never be sure.
    """
    random = np.random.default_rng(5)
    names = ["arm", "quarantined", "reward_unknown"]
    reasons = np.array([""] * 1500, dtype=object)
    for name in names:
        reasons[random.permutation(1500)[:60]] = name
    users = np.arange(1500) % 30
    values = {f"v{n}": random.normal(size=1500) for n in range(20)}
    values["v3"] = values["v3"] - 1.0 * (reasons == names[1])
    rows = {row["exit"]: row for row in audit(list(reasons), users, values, kept="kept")}
    assert [rows[name]["verdict"] for name in names] == ["same", "differs", "same"]
    told = warnings(list(rows.values()))
    assert len(told) == 1
    assert "v3" in told[0]
