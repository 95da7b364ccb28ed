"""Control charts: has a figure moved beyond what its own history explains?

`level.py` turns a series into scores that are standard normal while nothing new happens; `cusum.py` says
how high their sum may get. Pure, without a word about what is measured.
"""
