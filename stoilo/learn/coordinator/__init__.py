"""A training that goes on while its trainer is away, and groups that start together."""
