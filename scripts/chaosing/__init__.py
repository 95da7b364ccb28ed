"""Rooms of `scripts/chaos.py`: the load and its records, the world under it, the faults, the verdict."""
