"""`stoilo release`: the ceremony by which people sign what volunteers trust."""

from __future__ import annotations

import click

from stoilo.cli.lazy import TableGroup

_TABLE = {
    "keygen": ("stoilo.cli.release.keys", "keygen", "Make one person's offline key."),
    "online-keys": (
        "stoilo.cli.release.keys",
        "online_keys",
        "Make the server's own keys; write their public parts.",
    ),
    "build": (
        "stoilo.cli.release.build",
        "build",
        "Freeze verifier and flavors, build the launcher.",
    ),
    "init": (
        "stoilo.cli.release.propose",
        "init",
        "Propose a project's first release.",
    ),
    "request": (
        "stoilo.cli.release.propose",
        "request",
        "Propose changes to a published release.",
    ),
    "rotate": (
        "stoilo.cli.release.propose",
        "rotate",
        "Propose other keys for a role.",
    ),
    "revoke": (
        "stoilo.cli.release.propose",
        "revoke",
        "Propose to withdraw something, or to allow it again.",
    ),
    "review": (
        "stoilo.cli.release.sign",
        "review",
        "Show what changes, who signed and who is missing.",
    ),
    "sign": (
        "stoilo.cli.release.sign",
        "sign",
        "Add one signature, by one key, on one machine.",
    ),
    "combine": (
        "stoilo.cli.release.sign",
        "combine",
        "Bring the signatures of several copies together.",
    ),
    "publish": (
        "stoilo.cli.release.publish",
        "publish",
        "Put a complete ceremony's release in place.",
    ),
    "status": (
        "stoilo.cli.release.publish",
        "status",
        "Show who holds which role, and what expires when.",
    ),
    "verify": (
        "stoilo.cli.release.verify",
        "verify",
        "Check everything that a project has published.",
    ),
    "boinc-change": (
        "stoilo.cli.release.keys",
        "boinc_change",
        "Let BOINC's old key vouch for a new one.",
    ),
}


@click.group(cls=TableGroup, table=_TABLE)
def release() -> None:
    """Sign releases offline by several people, publish them, check them.

    A release: keygen (each person), init or request, review, sign (each person), combine,
    publish. Files in, files out; only publish needs the server.
    """
