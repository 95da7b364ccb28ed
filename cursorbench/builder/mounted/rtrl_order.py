"""A pytest plugin that runs the tests in another order; mounted read-only into validation runs.

RTRL_ORDER_SEED says which: "" or absent leaves the order as it is. Modules are shuffled, the classes of each
module, the tests of each class; a module's tests stay together, so that its fixtures are made once. What
another plugin orders on purpose comes after this and stays. Runs under any Python 3; imports nothing of rtrl.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,var-annotated"
import os
import random

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    seed = os.environ.get("RTRL_ORDER_SEED", "")
    if seed:
        items[:] = shuffled(list(items), seed)


def shuffled(items, seed):
    """The items in the order of a seed; the same for the same ids, in whatever order they come."""
    draw = random.Random(seed)
    modules = {}
    for item in sorted(items, key=lambda one: one.nodeid):
        module, _, rest = item.nodeid.partition("::")
        name = rest.partition("[")[0].rpartition("::")[0]
        modules.setdefault(module, {}).setdefault(name, []).append(item)
    order = []
    for module in _mixed(draw, list(modules)):
        for name in _mixed(draw, list(modules[module])):
            order += _mixed(draw, modules[module][name])
    return order


def _mixed(draw, found):
    draw.shuffle(found)
    return found
