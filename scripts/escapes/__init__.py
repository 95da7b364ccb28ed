"""The attempts of `scripts/escape.py`."""
