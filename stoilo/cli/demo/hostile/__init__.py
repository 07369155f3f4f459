"""Hostile programs as data: three for the gate, one for the jail alone."""

from importlib import resources

__all__ = ["GATE_PROGRAMS", "JAIL_PROGRAM", "read_program"]

GATE_PROGRAMS = ("dunder_walk", "hidden_text", "read_files")
JAIL_PROGRAM = "call_home"


def read_program(name: str) -> str:
    """Return one program's text."""
    return (resources.files(__name__) / f"{name}.txt").read_text(encoding="utf-8")
