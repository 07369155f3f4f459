"""`stoilo audit`: verify a log, read and watch it, be its witness, withdraw what it let in."""

from __future__ import annotations

import click

from stoilo.cli.lazy import TableGroup

__all__ = ["audit"]

# By who uses them: readers, monitors, operators, witnesses. Each module loads
# cryptography or the server, so none is imported before its command runs.
_COMMANDS = {
    "verify": ("entries", "verify", "Check a whole log against its signed checkpoint."),
    "show": ("entries", "show", "Show one entry, or all entries of a task."),
    "search": ("entries", "search", "Find entries by kind, digest, code, key or day."),
    "prove": (
        "entries",
        "prove",
        "Print the proof that a task's admission is in the log.",
    ),
    "check": ("entries", "check", "Verify an entry's proof, or one of misbehaviour."),
    "export": ("entries", "export", "Write a bundle that verifies offline."),
    "monitor": ("monitor", "monitor", "Follow a log from outside."),
    "revoke": ("removal", "revoke", "Withdraw what must not run any more, or list it."),
    "retain": ("removal", "retain", "Delete sources, arguments, results or salts."),
    "witness": ("witness", "witness", "Cosign the checkpoints of logs."),
    "key": ("witness", "key", "Print the verifier key of a log or a witness."),
}


@click.group(
    cls=TableGroup,
    table={
        name: (f"stoilo.cli.audit.{module}", attribute, text)
        for name, (module, attribute, text) in _COMMANDS.items()
    },
)
def audit() -> None:
    """Verify a log, fetch proofs, be a witness, withdraw what must not run any more."""
