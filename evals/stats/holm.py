"""Holm's step-down correction (Holm 1979): the family error stays at alpha, whatever the dependence."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


def holm(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """Adjusted p values by name: p_(i) -> max over j <= i of min(1, (m - j + 1) p_(j)).

    A hypothesis is rejected at family level alpha when its adjusted value is at most alpha.
    Equal to `statsmodels.stats.multitest.multipletests(method="holm")` (tested).
    """
    adjusted: dict[Name, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = highest
    return adjusted
