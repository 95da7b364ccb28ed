"""What git tells of an agent's changes: which commit took one, and what of it stands later.

`changes` has the records, `repository` opens a repository, `follow` answers.
Method and limits: docs/persistence.md.
"""
