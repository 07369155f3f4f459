"""Volunteers: their accounts, passwords, preferences and credit."""
