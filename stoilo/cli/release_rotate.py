"""`stoilo release rotate`: other keys for a role, proposed."""

from __future__ import annotations

from pathlib import Path

import click

from stoilo.cli.ceremony import (
    FILE,
    base_options,
    clock,
    json_option,
    open_or_begin,
    print_review,
    read_holders,
    save,
)
from stoilo.core.errors import UsageError

__all__ = ["rotate"]

ROLES = ("root", "targets", "gate", "policy", "reviewers", "revocation")


@click.command()
@base_options
@click.option("--role", required=True, type=click.Choice(ROLES), help="Whose keys.")
@click.option(
    "--out", "out", type=FILE, multiple=True, metavar="OLD.pub", help="A leaving key."
)
@click.option(
    "--in", "add", type=FILE, multiple=True, metavar="NEW.pub", help="A joining key."
)
@click.option(
    "--threshold",
    type=click.IntRange(min=1),
    help="How many must sign from now on; without it, as many as before.",
)
@json_option
def rotate(
    folder: Path,
    release_directory: Path | None,
    note: str,
    role: str,
    out: tuple[Path, ...],
    add: tuple[Path, ...],
    threshold: int | None,
    *,
    renew_expired: bool,
    as_json: bool,
) -> None:
    """Propose other keys for a role in FOLDER: one, several at once, another threshold.

    A root with other keys is signed by enough of the old keys and enough of the new
    ones. For keys that were lost, those that are left sign; the server's online keys
    change with `stoilo release request --online FILE`.

    Example: stoilo release rotate STICK --release DIR --role root --out ada.pub --in dora.pub
    """
    from stoilo.signer.ceremony.changes import Changes, RoleChange  # noqa: PLC0415
    from stoilo.signer.ceremony.requests import ask_for  # noqa: PLC0415 - loads tuf
    from stoilo.signer.ceremony.review import review  # noqa: PLC0415 - as above

    if not out and not add and threshold is None:
        raise UsageError(
            "STO-U003", "say what changes: --out, --in or --threshold", hint="--help"
        )
    ceremony = open_or_begin(
        folder, release_directory, note, renews_expired=renew_expired
    )
    now = clock()
    change = RoleChange(
        role, read_holders(out, role), read_holders(add, role), threshold
    )
    ceremony = ask_for(ceremony, Changes(keys=(change,)), now)
    save(folder, ceremony, "rotate", note)
    print_review(review(ceremony, now), folder, as_json=as_json)
