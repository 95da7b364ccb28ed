"""Monitors of a line: behaviours per cycle, control charts, alarms, and who acknowledged them."""
