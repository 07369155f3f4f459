"""`stoilo release`: the ceremony by which people sign what volunteers trust."""

from __future__ import annotations

import click

from stoilo.cli.lazy import TableGroup

_COMMANDS = {
    "keygen": ("keys", "keygen", "Make one person's offline key."),
    "online-keys": (
        "keys",
        "online_keys",
        "Make the server's own keys; write their public parts.",
    ),
    "build": ("build", "build", "Freeze verifier and flavors, build the launcher."),
    "init": ("init", "init", "Propose a project's first release."),
    "request": ("request", "request", "Propose changes to a published release."),
    "review": ("sign", "review", "Show what changes, who signed and who is missing."),
    "sign": ("sign", "sign", "Add one signature, by one key, on one machine."),
    "publish": ("sign", "publish", "Put a complete ceremony's release in place."),
    "status": ("verify", "status", "Show who holds which role, and what expires when."),
    "verify": ("verify", "verify", "Check everything that a project has published."),
    "boinc-change": (
        "keys",
        "boinc_change",
        "Let BOINC's old key vouch for a new one.",
    ),
}
_TABLE = {
    name: (f"stoilo.cli.release.{module}", command, line)
    for name, (module, command, line) in _COMMANDS.items()
}


@click.group(cls=TableGroup, table=_TABLE)
def release() -> None:
    """Sign releases offline by several people, publish them, check them.

    A release: keygen (each person), init or request, review, sign (each person), publish.
    Files in, files out; only publish needs the server.
    """
