"""Backups of a running server, and their way back."""
