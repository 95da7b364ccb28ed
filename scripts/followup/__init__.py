"""Collecting, labelling and learning from follow-up messages; `docs/followup.md`."""
