"""Checkpoints on their way to engines of other machines, through any store that fsspec knows.

    depot.py     the store: objects by digest, every byte checked
    push.py      from the registry into the store
    fetch.py     from the store into an engine's machine: deltas put together, the last ones kept
    __main__.py  the helper beside an engine: fetches what the gateway asks for

Whole checkpoints and deltas lie there as they were published, so that each machine moves only differences. A
chain of deltas is as long as `train.delta_chain` let it become. Not here: what an engine loads and when
(`stages/serving/outside.py`), the registry's own rebuilt folders (`stages/registry/rebuilt.py`).
"""
