"""Withdrawing what was once admitted: wishes, signed statements, when one is due."""
