"""Trials: a task of a suite tried by an agent in a sandbox and graded; many at once, each kept."""
