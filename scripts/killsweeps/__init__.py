"""The parts of `scripts/killsweep.py`."""
