"""What `python scripts/bench.py NAME` measures: a module for each NAME, and what several share (`_*.py`).

A bench has `figures() -> list[dict]`, or `add_arguments(parser)` and `figures(arguments)`. Parts that want a
process of their own are run as modules of this package (`_processes.py`). Not for: what is shown and
judged of the figures (`bench.py`).
"""
