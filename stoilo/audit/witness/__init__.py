"""Witnesses: cosigners that see to it that a log shows everybody the same history."""
