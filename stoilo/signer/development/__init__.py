"""A development root: every key of a project on one machine, and marked as such."""
