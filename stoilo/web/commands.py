"""The commands that a page shows, so that its reader need not believe the page. Pure."""

from __future__ import annotations

import shlex


def log_command(url: str) -> str:
    """Return the command that verifies the whole log of the server at `url`."""
    return f"stoilo audit verify {shlex.quote(url)} --policy policy.txt"


def check_command(url: str, index: int, *, record: str = "", source: str = "") -> str:
    """Return the one command, a line an option, that verifies an entry and its meaning.

    Args:
        url: of the server, with final slash.
        index: place of the entry.
        record: digest of its record; empty when it has none.
        source: digest of its published source; empty when there is none.
    """
    proof = shlex.quote(f"{url}audit/entry/{index}.tlog-proof")
    words = [f"stoilo audit check {proof} --policy policy.txt"]
    if record:
        words.append(f"--record {shlex.quote(f'{url}audit/records/{record}')}")
    if source:
        words.append(f"--source {shlex.quote(f'{url}audit/source/{source}')}")
    return " \\\n    ".join(words)


def show_command(url: str, name: str) -> str:
    """Return the command that shows a task or entry, each proven, without the pages."""
    return f"stoilo audit show {shlex.quote(name)} --data {shlex.quote(url)}"


def proof_name(index: int) -> str:
    """Return the file name of an entry's proof."""
    return f"entry-{index}.tlog-proof"
