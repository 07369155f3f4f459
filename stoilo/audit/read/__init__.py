"""Readers of a log that trust a key and nothing else."""
