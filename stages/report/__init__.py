"""What an experience tells of the agent: figures with intervals, over time, by population; what is missing.

`rtrl report` reads artifacts and writes no artifact. Not for: the gate's report of a candidate
(`stages/eval/report.py`), the reward itself (`stages/distill`).
"""
