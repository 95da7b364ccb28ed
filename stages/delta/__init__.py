"""Weights written as their difference to other weights: what a child checkpoint publishes.

    blocks.py    one block of a tensor as its difference to another, and back
    layout.py    where the tensors of a safetensors file lie
    file.py      the delta file: how it is framed, read and found damaged
    pieces.py    reading a file here and there
    source.py    weights to read from: whole files, or deltas on other weights
    write.py     the delta files of a checkpoint folder
    rebuild.py   the safetensors file again, byte for byte

Works on paths alone. Not here: which checkpoint is whose base, and where rebuilt ones are kept
(`stages/registry/chain.py`, `stages/registry/rebuilt.py`).
"""

SUFFIX = ".delta"  # model.safetensors.delta stands for model.safetensors
LONGEST = 64  # deltas in a row: all are read through to make one checkpoint whole
