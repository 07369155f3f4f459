"""`stoilo release init|request|rotate|revoke`: proposals that people review and sign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from stoilo.cli.keys import read_public_file
from stoilo.cli.release.ceremony_folder import (
    FILE,
    FOLDER,
    base_options,
    clock,
    json_option,
    open_or_begin,
    print_review,
    read_floors,
    read_holders,
    read_named,
    read_policies,
    read_small,
    read_witness_policy,
    refuse_present,
    save,
)
from stoilo.core.digests import check_digest
from stoilo.core.errors import UsageError
from stoilo.executor.verifier.installation import installed_release
from stoilo.executor.verifier.targets import (
    BuilderFile,
    BuilderKey,
    ReviewerFile,
    read_target,
)
from stoilo.policies.levels import level_files
from stoilo.policies.policy import default_policy
from stoilo.signer.ceremony.built_parts import (
    drop_part,
    read_attestations,
    read_parts_from,
)
from stoilo.signer.ceremony.content_checks import named_targets, release_parts
from stoilo.signer.ceremony.folder import Ceremony, CeremonyFile
from stoilo.signer.ceremony.key_holders import RoleChange, RoleSet
from stoilo.signer.ceremony.proposal import (
    Changes,
    Proposal,
    ReleasePlan,
    first_proposal,
)
from stoilo.signer.ceremony.requests import (
    FirstRelease,
    Withdrawal,
    accept_policies,
    add_builds,
    ask_for,
    change_builders,
    first_targets,
    online_role,
    raise_floors,
    roles_ending,
    take_levels,
    take_log_policy,
    take_online_keys,
    take_reviewers,
    withdraw,
)
from stoilo.signer.ceremony.review import review
from stoilo.signer.process.online_keys import parse_online_keys
from stoilo.signer.roles import OFFLINE

SEVERAL = ("root", "targets")
"""Roles that one person never holds alone."""


def _propose(
    folder: Path, ceremony: Ceremony, act: str, note: str, *, as_json: bool
) -> None:
    """Write what is proposed by now, and show how it looks to those who will sign."""
    save(folder, ceremony, act, note)
    print_review(review(ceremony, clock()), folder, as_json=as_json)


def _role_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--ROLE KEY.pub`` and ``--ROLE-threshold N`` for every offline role."""
    for role in reversed(OFFLINE):
        command = click.option(
            f"--{role}-threshold",
            type=click.IntRange(min=1),
            default=2 if role in SEVERAL else 1,
            show_default=True,
            help=f"How many of them must sign for {role}.",
        )(command)
        command = click.option(
            f"--{role}",
            type=FILE,
            multiple=True,
            metavar="KEY.pub",
            help=f"A public key of {role}; once for each person.",
        )(command)
    return command


@click.command()
@click.argument("folder", type=FOLDER)
@click.option("--origin", default="", help="The project's name; that of --online.")
@_role_options
@click.option(
    "--online",
    "online_file",
    required=True,
    type=FILE,
    help="Public keys made on the server: `stoilo release online-keys`.",
)
@click.option(
    "--builder",
    "builders",
    type=FILE,
    multiple=True,
    metavar="KEY.pub",
    help="A builder's public key; once for each.",
)
@click.option(
    "--builders-threshold",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="How many builders must get the same bytes.",
)
@click.option(
    "--accept-policy",
    "policies",
    type=FILE,
    multiple=True,
    help="A policy file of the server; the shipped default without any.",
)
@click.option("--log-policy", type=FILE, help="Witnesses that must cosign the log.")
@click.option(
    "--build",
    "built",
    type=FOLDER,
    multiple=True,
    help="Directory of built parts to publish with it.",
)
@click.option("--rehearsal", is_flag=True, help="A staging project: mark its root.")
@click.option("--note", default="", help="Why, for those who will sign.")
@json_option
def init(
    folder: Path,
    origin: str,
    online_file: Path,
    builders: tuple[Path, ...],
    builders_threshold: int,
    policies: tuple[Path, ...],
    log_policy: Path | None,
    built: tuple[Path, ...],
    *,
    note: str,
    rehearsal: bool,
    as_json: bool,
    **named: Any,  # noqa: ANN401 - one pair of options a role
) -> None:
    """Propose a project's first release in FOLDER, for people to review and sign.

    Nothing is secret in FOLDER, and nothing in it counts before enough people signed.

    Example: stoilo release init STICK --root ada.root.pub ... --online online.json
    """
    refuse_present(folder)
    online_bytes = read_small(online_file)
    online = parse_online_keys(online_bytes)
    if origin not in {"", online.origin}:
        raise UsageError(
            "STO-K062", f"{online_file.name} was made for {online.origin!r}"
        )
    server = online_role(online)
    roles = {
        role: _role_set(named[role], role, named[f"{role}_threshold"])
        for role in OFFLINE
    }
    keys = tuple(
        BuilderKey(one.key, one.name)
        for one in (read_named(path, "builder") for path in builders)
    )
    targets = first_targets(
        FirstRelease(
            online=online,
            witnesses=read_witness_policy(log_policy),
            installed=installed_release(),
            level_files=level_files(),
            policies=read_policies(policies) or (default_policy(),),
            builders=BuilderFile(keys, builders_threshold if keys else 0),
        )
    )
    parts = tuple(one for place in built for one in read_parts_from(place).put)
    now = clock()
    proposal = first_proposal(
        ReleasePlan(
            {**roles, "snapshot": server, "timestamp": server},
            (*targets, *parts),
            rehearsal,
            now,
        )
    )
    about = CeremonyFile(
        origin=online.origin, rehearsal=rehearsal, created=now, note=note
    )
    ceremony = Ceremony(about, proposal, online=online_bytes)
    for place in (*built, folder):
        ceremony = add_builds(ceremony, read_attestations(place))
    _propose(folder, ceremony, "init", note, as_json=as_json)


def _role_set(paths: tuple[Path, ...], role: str, threshold: int) -> RoleSet:
    if not paths:
        raise UsageError(
            "STO-K053",
            f"nobody holds {role}",
            hint=f"stoilo release keygen --role {role} ..., then --{role} KEY.pub",
        )
    return RoleSet(read_holders(paths, role), threshold)


@click.command()
@base_options
@click.option(
    "--build",
    "built",
    type=FOLDER,
    multiple=True,
    help="Directory of built parts to publish: launcher, verifier, flavors.",
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
@json_option
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

    Once FOLDER holds a ceremony that nobody has signed, the command may be given again
    (without --release) to ask for more.

    Example: stoilo release request STICK --release /srv/stoilo --build dist --renew soon
    """
    ceremony = open_or_begin(
        folder, release_directory, note, renews_expired=renew_expired
    )
    now = clock()
    # Each change is made on what the earlier ones left: two may touch one file.
    for step in _STEPS:
        changes = step(asked, ceremony.proposal, now)
        if changes is not None:
            ceremony = ask_for(ceremony, changes, now)
    for place in asked["built"]:
        ceremony = add_builds(ceremony, read_attestations(place))
    if asked["online_file"]:  # kept in the folder, for the record
        ceremony = replace(ceremony, online=read_small(asked["online_file"]))
    if not ceremony.proposal.metadata:
        raise UsageError(
            "STO-K054",
            "nothing would change",
            hint="say what: `stoilo release request --help`",
        )
    _propose(folder, ceremony, "request", note, as_json=as_json)


Asked = dict[str, Any]
"""The options of `request` by their names, as click has checked them."""


def _build(asked: Asked, _: Proposal, __: int) -> Changes | None:
    changes = None
    for place in asked["built"]:
        changes = (changes or Changes()) | read_parts_from(place)
    return changes


def _online(asked: Asked, proposal: Proposal, _: int) -> Changes | None:
    path = asked["online_file"]
    if path is None:
        return None
    return take_online_keys(proposal, parse_online_keys(read_small(path)))


def _levels(asked: Asked, proposal: Proposal, _: int) -> Changes | None:
    if not asked["levels"]:
        return None
    return take_levels(proposal, installed_release(), level_files())


def _log(asked: Asked, proposal: Proposal, now: int) -> Changes | None:
    size, online = asked["log_size"], asked["online_file"]
    if asked["log_policy"] is None and size is None:
        return None
    if size is None:
        raise UsageError(
            "STO-U003",
            "the log's present size is needed, so that older proofs stay good",
            hint="`stoilo audit verify DIR` prints it: --log-size LEAVES",
        )
    vkey = parse_online_keys(read_small(online)).log_vkey if online else ""
    witnesses = read_witness_policy(asked["log_policy"])
    return take_log_policy(proposal, witnesses, vkey, now=now, size=size)


def _policies(asked: Asked, proposal: Proposal, _: int) -> Changes | None:
    if not asked["policies"] and not asked["dropped"]:
        return None
    return accept_policies(proposal, read_policies(asked["policies"]), asked["dropped"])


def _reviewers(asked: Asked, _: Proposal, __: int) -> Changes | None:
    path = asked["reviewers"]
    if path is None:
        return None
    return take_reviewers(read_target(read_small(path), ReviewerFile, path.name))


def _floors(asked: Asked, proposal: Proposal, _: int) -> Changes | None:
    floors = read_floors(asked["floors"])
    return raise_floors(proposal, floors) if floors else None


def _builders(asked: Asked, proposal: Proposal, _: int) -> Changes | None:
    joining, leaving = asked["builder_in"], asked["builder_out"]
    threshold = asked["builders_threshold"]
    if not joining and not leaving and threshold is None:
        return None
    named = (read_named(path, "builder") for path in joining)
    add = [BuilderKey(one.key, one.name) for one in named]
    out = [one.key for one in read_holders(leaving, "builder")]
    return change_builders(proposal, add, out, threshold)


def _renew(asked: Asked, proposal: Proposal, now: int) -> Changes | None:
    roles: list[str] = []
    for word in asked["renew"]:
        if word == "all":
            roles += OFFLINE
        elif word == "soon":
            roles += roles_ending(proposal.base, now) if proposal.base else ()
        else:
            roles.append(word)
    return Changes(renew=tuple(dict.fromkeys(roles))) if asked["renew"] else None


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
)


@click.command()
@base_options
@click.option("--role", required=True, type=click.Choice(OFFLINE), help="Whose keys.")
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
    if not out and not add and threshold is None:
        raise UsageError(
            "STO-U003", "say what changes: --out, --in or --threshold", hint="--help"
        )
    ceremony = open_or_begin(
        folder, release_directory, note, renews_expired=renew_expired
    )
    change = RoleChange(
        role, read_holders(out, role), read_holders(add, role), threshold
    )
    ceremony = ask_for(ceremony, Changes(keys=(change,)), clock())
    _propose(folder, ceremony, "rotate", note, as_json=as_json)


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
        name, _, platform = part.partition("/")
        names = drop_part(set(named_targets(ceremony.proposal)), name, platform)
        ceremony = ask_for(ceremony, Changes(drop=names), now)
        made = _with_part(ceremony.proposal, made, name, platform)
    for key in keys:
        ceremony = ask_for(ceremony, _without_key(ceremony.proposal, key), now)
    if settle or made != Withdrawal():
        changes = withdraw(ceremony.proposal, made, take_back=allow, settle=settle)
        ceremony = ask_for(ceremony, changes, now)
    _propose(folder, ceremony, "revoke", note, as_json=as_json)


def _with_part(
    proposal: Proposal, made: Withdrawal, name: str, platform: str
) -> Withdrawal:
    """Return the withdrawal with a published part's archives, and a flavor's id."""
    for one in release_parts(Proposal(proposal.base)) if proposal.base else ():
        if one.part == name and platform in {"", one.platform}:
            made = replace(made, digests=(*made.digests, one.archive.sha256))
            if one.flavor and not platform:
                made = replace(made, flavors=(*made.flavors, one.flavor))
    return made


def _without_key(proposal: Proposal, path: Path) -> Changes:
    """Return what takes a key out of the role, or the builders, that it is for."""
    role = read_public_file(path).role
    holders = read_holders((path,), role) if role != "boinc" else ()
    if role == "builder":
        return change_builders(proposal, (), [one.key for one in holders], None)
    if role not in OFFLINE:
        raise UsageError(
            "STO-K054",
            "BOINC's key is not in the release's metadata",
            hint="`stoilo release boinc-change` makes a new one take over",
        )
    return Changes(keys=(RoleChange(role, holders),))
