"""Frozen dependency sets and their names."""
