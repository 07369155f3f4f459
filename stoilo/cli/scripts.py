"""A file of the user's own, as a task: what commands that take FILE have in common."""

from __future__ import annotations

import click

from stoilo.policies.entry import read_script

__all__ = ["read_as_task"]


def read_as_task(data: bytes) -> bytes:
    """Return the task in a file's bytes, after saying on stderr what is no part of it."""
    text = read_script(data)
    for note in text.notes:
        click.echo(f"note: {note}", err=True)
    return text.source
