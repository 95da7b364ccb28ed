"""The statistics of the gate and of every table with an interval: small pure functions on arrays.

Not here: what is compared and what is decided (`evals/gate.py`), sequential tests of a running A/B.

Letters used throughout: N cases, G clusters (users, repositories), d a difference signed so that
more is better.
"""
