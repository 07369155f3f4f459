"""Volunteers: accounts, preferences, credit, statistics, and their pages."""
