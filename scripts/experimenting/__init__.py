"""The parts of `scripts/experiments.py`."""
