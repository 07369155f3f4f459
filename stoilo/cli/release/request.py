"""`stoilo release request`: changes to a release, for people to review and sign."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from stoilo.cli.keys import read_public_file, read_small
from stoilo.cli.output import FILE, FOLDER, JSON
from stoilo.cli.output import now as clock
from stoilo.cli.release.ceremony_folder import (
    open_or_begin,
    propose,
    read_builders,
    read_floors,
    read_holders,
    read_policies,
    read_witness_policy,
)
from stoilo.core.digests import check_digest
from stoilo.core.errors import UsageError
from stoilo.core.levels import level_files
from stoilo.executor.verifier.targets import ReviewerFile, RevocationFile, read_target
from stoilo.executor.verifier.trust import installed_release
from stoilo.signer.ceremony.base_release import roles_ending
from stoilo.signer.ceremony.built_parts import (
    drop_part,
    read_attestations,
    read_parts_from,
)
from stoilo.signer.ceremony.content_checks import named_targets, release_parts
from stoilo.signer.ceremony.folder import add_builds
from stoilo.signer.ceremony.key_holders import KeyHolder, RoleChange
from stoilo.signer.ceremony.lists import list_target
from stoilo.signer.ceremony.proposal import (
    Changes,
    Proposal,
    amend_proposal,
)
from stoilo.signer.ceremony.requests import (
    accept_policies,
    allow_again,
    change_builders,
    merge_withdrawn,
    raise_floors,
    take_levels,
    take_log_policy,
    take_online_keys,
    withdraw,
)
from stoilo.signer.process.online_keys import parse_online_keys
from stoilo.signer.roles import OFFLINE


@click.command()
@click.argument("folder", type=FOLDER)
@click.option(
    "--release",
    "release_directory",
    type=FOLDER,
    help="Published release, or the server's data directory, to build on.",
)
@click.option("--note", default="", help="Why, for those who will sign.")
@click.option(
    "--renew-expired",
    is_flag=True,
    help="Say on purpose that the release has run out.",
)
@click.option(
    "--build",
    "built",
    type=FOLDER,
    multiple=True,
    help="Directory of built parts to publish: launcher, verifier, flavors.",
)
@click.option(
    "--flavors",
    "flavors",
    type=FOLDER,
    multiple=True,
    help="Directory of built flavors that the policy role alone publishes.",
)
@click.option("--online", "online_file", type=FILE, help="New keys made on the server.")
@click.option("--levels", is_flag=True, help="Accept this package's levels too.")
@click.option("--log-policy", type=FILE, help="Other witnesses that must cosign.")
@click.option(
    "--log-size",
    type=click.IntRange(min=0),
    help="Leaves of the newest checkpoint, when the log's policy or key changes.",
)
@click.option(
    "--accept-policy", "policies", type=FILE, multiple=True, help="A server's policy."
)
@click.option("--drop-policy", "dropped", multiple=True, help="Digest of a policy.")
@click.option("--reviewers", type=FILE, help="Exactly these reviewers (keys.json).")
@click.option(
    "--floor",
    "floors",
    multiple=True,
    metavar="PART=SERIAL",
    help="The oldest verifier or flavor that may still work.",
)
@click.option("--builder-in", type=FILE, multiple=True, help="A new builder's .pub.")
@click.option("--builder-out", type=FILE, multiple=True, help="A leaving one's .pub.")
@click.option("--builders-threshold", type=click.IntRange(min=2), default=None)
@click.option(
    "--renew",
    multiple=True,
    metavar="ROLE|soon|all",
    help="Sign a role again; `soon`: those that end soon.",
)
@click.option("--role", type=click.Choice(OFFLINE), help="The role of --in and --out.")
@click.option(
    "--in", "add", type=FILE, multiple=True, metavar="NEW.pub", help="A joining key."
)
@click.option(
    "--out", type=FILE, multiple=True, metavar="OLD.pub", help="A key that leaves."
)
@click.option(
    "--threshold",
    type=click.IntRange(min=1),
    help="How many of the role must sign from now on; else as many as before.",
)
@click.option(
    "--withdraw",
    "withdrawn",
    multiple=True,
    metavar="KIND=WHAT",
    help="digest=, flavor=, epoch=, below-epoch=, key=FILE or part=NAME[/PLATFORM].",
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="KIND=WHAT",
    help="Allow again a digest=, flavor= or epoch= that was withdrawn offline.",
)
@click.option(
    "--settle",
    type=click.IntRange(min=0),
    default=0,
    help="Online statements up to this one count as settled by the offline list.",
)
@JSON
def request(
    folder: Path,
    release_directory: Path | None,
    note: str,
    *,
    renew_expired: bool,
    as_json: bool,
    **asked: Any,  # noqa: ANN401 - every option that asks for a change
) -> None:
    """Propose changes to a published release in FOLDER, for people to review and sign.

    Parts, epochs, levels, lists; other keys for a role; what must not run any more. Once
    FOLDER holds a ceremony that nobody has signed, the command may be given again
    (without --release) to ask for more. A root with other keys is signed by enough of
    the old keys and enough of the new ones; of keys that were lost, those that are left
    sign. What is withdrawn here is withdrawn offline, by the role's people; for the first
    hour `stoilo audit revoke` withdraws online, at once.

    Example: stoilo release request STICK --release /srv/stoilo --build dist --renew soon

    Example: stoilo release request STICK --release DIR --flavors dist

    Example: stoilo release request STICK --release DIR --role root --out ada.pub --in dora.pub

    Example: stoilo release request STICK --release DIR --withdraw part=numeric
    """
    if asked["role"] is None and (asked["add"] or asked["out"] or asked["threshold"]):
        raise UsageError("STO-U003", "say whose keys change: --role ROLE")
    ceremony = open_or_begin(
        folder, release_directory, note, renews_expired=renew_expired
    )
    now = clock()
    # Each change is made on what the earlier ones left: two may touch one file.
    for step in _STEPS:
        for changes in step(asked, ceremony.proposal, now):
            ceremony = replace(
                ceremony, proposal=amend_proposal(ceremony.proposal, changes, now)
            )
    for place in (*asked["built"], *asked["flavors"]):
        ceremony = add_builds(ceremony, read_attestations(place))
    if asked["online_file"]:  # kept in the folder, for the record
        ceremony = replace(ceremony, online=read_small(asked["online_file"]))
    if not ceremony.proposal.metadata:
        raise UsageError(
            "STO-K054",
            "nothing would change",
            hint="say what: `stoilo release request --help`",
        )
    propose(folder, ceremony, "request", note, as_json=as_json)


Asked = dict[str, Any]
"""The options of `request` by their names, as click has checked them."""


def _build(asked: Asked, _: Proposal, __: int) -> Iterator[Changes]:
    for place in asked["built"]:
        yield read_parts_from(place)
    for place in asked["flavors"]:
        yield read_parts_from(place, by_policy=True)


def _online(asked: Asked, proposal: Proposal, _: int) -> Iterator[Changes]:
    path = asked["online_file"]
    if path is not None:
        yield take_online_keys(proposal, parse_online_keys(read_small(path)))


def _levels(asked: Asked, proposal: Proposal, _: int) -> Iterator[Changes]:
    if asked["levels"]:
        yield take_levels(proposal, installed_release(), level_files())


def _log(asked: Asked, proposal: Proposal, now: int) -> Iterator[Changes]:
    size, online = asked["log_size"], asked["online_file"]
    if asked["log_policy"] is None and size is None:
        return
    if size is None:
        raise UsageError(
            "STO-U003",
            "the log's present size is needed, so that older proofs stay good",
            hint="`stoilo audit verify DIR` prints it: --log-size LEAVES",
        )
    vkey = parse_online_keys(read_small(online)).log_vkey if online else ""
    witnesses = read_witness_policy(asked["log_policy"])
    yield take_log_policy(proposal, witnesses, vkey, now=now, size=size)


def _policies(asked: Asked, proposal: Proposal, _: int) -> Iterator[Changes]:
    add, dropped = asked["policies"], asked["dropped"]
    if add or dropped:
        yield accept_policies(proposal, read_policies(add), dropped)


def _reviewers(asked: Asked, _: Proposal, __: int) -> Iterator[Changes]:
    path = asked["reviewers"]
    if path is not None:
        record = read_target(read_small(path), ReviewerFile, path.name)
        yield Changes((list_target(record),))


def _floors(asked: Asked, proposal: Proposal, _: int) -> Iterator[Changes]:
    floors = read_floors(asked["floors"])
    if floors:
        yield raise_floors(proposal, floors)


def _builders(asked: Asked, proposal: Proposal, _: int) -> Iterator[Changes]:
    threshold = asked["builders_threshold"]
    out = [one.key for one in read_holders(asked["builder_out"], "builder")]
    add = read_builders(asked["builder_in"])
    if add or out or threshold is not None:
        yield change_builders(proposal, add, out, threshold)


def _renew(asked: Asked, proposal: Proposal, now: int) -> Iterator[Changes]:
    roles: list[str] = []
    for word in asked["renew"]:
        if word == "all":
            roles += OFFLINE
        elif word == "soon":
            roles += roles_ending(proposal.base, now) if proposal.base else ()
        else:
            roles.append(word)
    if roles:
        yield Changes(renew=tuple(dict.fromkeys(roles)))


def _keys(asked: Asked, _: Proposal, __: int) -> Iterator[Changes]:
    role = asked["role"]
    if role is None:
        return
    out, add = read_holders(asked["out"], role), read_holders(asked["add"], role)
    if not out and not add and asked["threshold"] is None:
        raise UsageError("STO-U003", "say what changes: --out, --in or --threshold")
    yield Changes(keys=(RoleChange(role, out, add, asked["threshold"]),))


def _withdrawals(asked: Asked, proposal: Proposal, _: int) -> Iterator[Changes]:
    made, builders = RevocationFile(), []
    for text in asked["withdrawn"]:
        kind, _, what = text.partition("=")
        if kind == "part":
            name, _, platform = what.partition("/")
            yield Changes(drop=drop_part(set(named_targets(proposal)), name, platform))
            made = merge_withdrawn(made, _part(proposal, name, platform))
        elif kind == "key":
            role, holders = _holder(Path(what))
            if role == "builder":
                builders += [one.key for one in holders]
            else:
                yield Changes(keys=(RoleChange(role, holders),))
        else:
            made = merge_withdrawn(made, _named(kind, what))
    if builders:
        yield change_builders(proposal, (), builders, None)
    if made != RevocationFile() or asked["settle"]:
        yield withdraw(proposal, made, settle=asked["settle"])


def _allowances(asked: Asked, proposal: Proposal, _: int) -> Iterator[Changes]:
    rows = (text.partition("=") for text in asked["allowed"])
    if asked["allowed"]:
        named = (_named(kind, what) for kind, _, what in rows)
        yield allow_again(proposal, merge_withdrawn(RevocationFile(), *named))


def _named(kind: str, what: str) -> RevocationFile:
    """Return the list of one thing; raises ``STO-U003``."""
    number = int(what) if what.isascii() and what.isdigit() else 0
    match kind:
        case "digest":
            return RevocationFile(digests=(check_digest(what),))
        case "flavor":
            return RevocationFile(flavors=(check_digest(what),))
        case "epoch" if number:
            return RevocationFile(epochs=(number,))
        case "below-epoch" if number:
            return RevocationFile(min_epoch=number)
    raise UsageError("STO-U003", f"{kind[:20]}={what[:80]!r} names nothing")


def _part(proposal: Proposal, name: str, platform: str) -> RevocationFile:
    """Return a published part's archives, and a flavor's id where it goes as a whole."""
    parts = release_parts(Proposal(proposal.base)) if proposal.base else ()
    gone = [one for one in parts if one.part == name and platform in {"", one.platform}]
    return RevocationFile(
        digests=tuple(one.archive.sha256 for one in gone),
        flavors=tuple({one.flavor for one in gone if one.flavor and not platform}),
    )


def _holder(path: Path) -> tuple[str, tuple[KeyHolder, ...]]:
    """Return the role that a public key is for, and whose it is."""
    role = read_public_file(path).role
    if role not in (*OFFLINE, "builder"):
        raise UsageError(
            "STO-K054",
            "BOINC's key is not in the release's metadata",
            hint="`stoilo release sign NEW.pub` makes a new one take over",
        )
    return role, read_holders((path,), role)


_STEPS = (
    _build,
    _online,
    _levels,
    _log,
    _policies,
    _reviewers,
    _floors,
    _builders,
    _renew,
    _keys,
    _withdrawals,
    _allowances,
)
