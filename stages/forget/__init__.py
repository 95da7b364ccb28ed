"""Forgetting a user: `rtrl forget`. Not a stage: it makes no artifact and changes none."""
