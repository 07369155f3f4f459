"""What people write for a command: a source, a policy, a function's arguments."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stoilo.core.codec.json_values import parse_json_value
from stoilo.core.codec.nodes import Node
from stoilo.core.errors import UsageError
from stoilo.core.limits import BOUNDS
from stoilo.policies.entry import read_script
from stoilo.policies.policy import Policy, default_policy, parse_policy

_READ_BYTES = 16 * 1024 * 1024  # more than any source may have; the gate refuses less
_KWARGS_BYTES = 64 * 1024 * 1024


def read_source(file: str, most: int = _READ_BYTES) -> bytes:
    """Return the bytes of `file` (``-``: stdin).

    Raises:
        UsageError: ``STO-U004``, not readable or beyond `most` bytes.
    """
    try:
        if file == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise UsageError("STO-U004", f"cannot read {file!r}: {reason}") from error
    if len(data) > most:
        raise UsageError("STO-U004", f"{file!r} is larger than {most:,} bytes")
    return data


def read_policy(file: str | None) -> Policy:
    """Return the policy in a file, or the shipped one."""
    return default_policy() if file is None else parse_policy(read_source(file))


def read_as_task(data: bytes) -> bytes:
    """Return the task in a file's bytes, after saying on stderr what is no part of it."""
    text = read_script(data)
    for note in text.notes:
        click.echo(f"note: {note}", err=True)
    return text.source


def read_kwargs(text: str) -> Node:
    """Return the dict that ``--kwargs`` (JSON or @FILE) names, or raise ``STO-D009``."""
    given = read_source(text[1:], _KWARGS_BYTES) if text.startswith("@") else text
    node = parse_json_value(given)
    if not isinstance(node, dict):
        raise UsageError("STO-D009", "--kwargs must be one JSON object")
    return node


def read_program(file: str) -> str:
    """Return a program's text or raise ``STO-U004``."""
    try:
        return read_source(file, BOUNDS.source_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("STO-U004", f"{file} is not UTF-8: {error.reason}") from error
