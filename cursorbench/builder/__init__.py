"""Tasks made from a repository's history, and from the sessions of the agents that worked on it.

`build.build` does it all; `docs/bench-build.md` has the rules. Not here: the task format
(`cursorbench/tasks/`), running commands (`cursorbench/sandbox/`), trying tasks.
"""
