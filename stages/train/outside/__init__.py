"""For teams with a trainer of their own: experience out, their checkpoint back in."""
