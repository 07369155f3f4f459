"""Cells: trusted groups of processes with direct links that execute a method's orders."""
