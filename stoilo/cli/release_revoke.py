"""`stoilo release revoke`: withdraw offline, or allow again; proposed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
from stoilo.cli.keys import read_public_file
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.signer.ceremony.asks import Withdrawal
    from stoilo.signer.ceremony.changes import Changes
    from stoilo.signer.ceremony.proposal import Proposal

__all__ = ["revoke"]

_ROLES = ("root", "targets", "gate", "policy", "reviewers", "revocation")


@click.command()
@base_options
@click.option("--digest", "digests", multiple=True, help="SHA-256 of anything.")
@click.option("--flavor", "flavors", multiple=True, help="Id of a flavor.")
@click.option("--epoch", "epochs", type=int, multiple=True, help="A gate epoch.")
@click.option("--min-epoch", type=int, default=1, help="Every gate epoch below this.")
@click.option(
    "--key", "keys", type=FILE, multiple=True, metavar="KEY.pub", help="A public key."
)
@click.option(
    "--part",
    "parts",
    multiple=True,
    metavar="NAME[/PLATFORM]",
    help="A flavor, launcher or verifier: no longer offered, its archive withdrawn.",
)
@click.option("--allow", is_flag=True, help="Allow again what was withdrawn offline.")
@click.option(
    "--settle",
    type=click.IntRange(min=0),
    default=0,
    help="Online statements up to this one count as settled by this list.",
)
@json_option
def revoke(
    folder: Path,
    release_directory: Path | None,
    note: str,
    digests: tuple[str, ...],
    flavors: tuple[str, ...],
    epochs: tuple[int, ...],
    keys: tuple[Path, ...],
    parts: tuple[str, ...],
    *,
    min_epoch: int,
    allow: bool,
    settle: int,
    renew_expired: bool,
    as_json: bool,
) -> None:
    """Propose in FOLDER to withdraw epochs, flavors, keys, parts, anything by its digest.

    This is the offline list, which its role's people sign; for the first hour
    `stoilo audit revoke` withdraws online, at once. A key is taken out of the role, or
    the builders, that it was made for.
    """
    from stoilo.core.digests import check_digest  # noqa: PLC0415 - with the rest
    from stoilo.signer.ceremony.asks import Withdrawal, withdraw  # noqa: PLC0415
    from stoilo.signer.ceremony.requests import ask_for  # noqa: PLC0415 - loads tuf
    from stoilo.signer.ceremony.review import review  # noqa: PLC0415 - as above

    made = Withdrawal(
        tuple(check_digest(one) for one in digests),
        tuple(check_digest(one) for one in flavors),
        epochs,
        min_epoch,
    )
    if not (keys or parts or settle) and made == Withdrawal():
        raise UsageError(
            "STO-U003", "say what: --digest, --flavor, --epoch, --key or --part"
        )
    ceremony = open_or_begin(
        folder, release_directory, note, renews_expired=renew_expired
    )
    now = clock()
    for part in parts:
        ceremony = ask_for(ceremony, _without(ceremony.proposal, part), now)
        made = _with_part(ceremony.proposal, made, part)
    for key in keys:
        ceremony = ask_for(ceremony, _without_key(ceremony.proposal, key), now)
    if settle or made != Withdrawal():
        changes = withdraw(ceremony.proposal, made, take_back=allow, settle=settle)
        ceremony = ask_for(ceremony, changes, now)
    save(folder, ceremony, "revoke", note)
    print_review(review(ceremony, now), folder, as_json=as_json)


def _split(part: str) -> tuple[str, str]:
    name, _, platform = part.partition("/")
    return name, platform


def _without(proposal: Proposal, part: str) -> Changes:
    """Return what takes a part out of the release."""
    from stoilo.signer.ceremony.changes import Changes  # noqa: PLC0415 - loads tuf
    from stoilo.signer.ceremony.content import named_targets  # noqa: PLC0415
    from stoilo.signer.ceremony.partfiles import drop_part  # noqa: PLC0415

    return Changes(drop=drop_part(set(named_targets(proposal)), *_split(part)))


def _with_part(proposal: Proposal, made: Withdrawal, part: str) -> Withdrawal:
    """Return the withdrawal with a published part's archives, and a flavor's id."""
    from dataclasses import replace  # noqa: PLC0415 - with the rest

    from stoilo.signer.ceremony.content import release_parts  # noqa: PLC0415
    from stoilo.signer.ceremony.proposal import Proposal as Whole  # noqa: PLC0415

    name, platform = _split(part)
    for one in release_parts(Whole(proposal.base)) if proposal.base else ():
        if one.part == name and platform in {"", one.platform}:
            made = replace(made, digests=(*made.digests, one.archive.sha256))
            if one.flavor and not platform:
                made = replace(made, flavors=(*made.flavors, one.flavor))
    return made


def _without_key(proposal: Proposal, path: Path) -> Changes:
    """Return what takes a key out of the role, or the builders, that it is for."""
    from stoilo.signer.ceremony.asks import change_builders  # noqa: PLC0415
    from stoilo.signer.ceremony.changes import Changes, RoleChange  # noqa: PLC0415

    role = read_public_file(path).role
    holders = read_holders((path,), role) if role != "boinc" else ()
    if role == "builder":
        return change_builders(proposal, (), [one.key for one in holders], None)
    if role not in _ROLES:
        raise UsageError(
            "STO-K054",
            "BOINC's key is not in the release's metadata",
            hint="`stoilo release boinc-change` makes a new one take over",
        )
    return Changes(keys=(RoleChange(role, holders),))
