"""`stoilo release init`: a project's first release, for people to review and sign."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stoilo.cli.keys import read_small
from stoilo.cli.output import FILE, FOLDER, JSON
from stoilo.cli.output import now as clock
from stoilo.cli.release.ceremony_folder import (
    propose,
    read_builders,
    read_holders,
    read_policies,
    read_witness_policy,
    refuse_present,
)
from stoilo.core.errors import UsageError
from stoilo.core.levels import level_files
from stoilo.executor.verifier.targets import BuilderFile
from stoilo.executor.verifier.trust import installed_release
from stoilo.policies.policy import default_policy
from stoilo.signer.ceremony.built_parts import (
    read_attestations,
    read_parts_from,
)
from stoilo.signer.ceremony.folder import Ceremony, CeremonyFile, add_builds
from stoilo.signer.ceremony.key_holders import RoleSet
from stoilo.signer.ceremony.proposal import (
    first_proposal,
)
from stoilo.signer.ceremony.requests import first_targets, online_role
from stoilo.signer.process.online_keys import parse_online_keys
from stoilo.signer.roles import OFFLINE

SEVERAL = ("root", "targets")
"""Roles that one person never holds alone."""


def _role_options(command: Callable[..., Any]) -> Callable[..., Any]:
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
@JSON
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
        raise UsageError("STO-K063", f"{online_file} was made for {online.origin!r}")
    server = online_role(online)
    roles = {
        role: _role_set(named[role], role, named[f"{role}_threshold"])
        for role in OFFLINE
    }
    keys = tuple(read_builders(builders))
    targets = first_targets(
        online,
        installed_release(),
        witnesses=read_witness_policy(log_policy),
        level_files=level_files(),
        policies=read_policies(policies) or (default_policy(),),
        builders=BuilderFile(keys, builders_threshold if keys else 0),
    )
    parts = tuple(one for place in built for one in read_parts_from(place).put)
    now = clock()
    proposal = first_proposal(
        {**roles, "snapshot": server, "timestamp": server},
        (*targets, *parts),
        now,
        rehearsal=rehearsal,
    )
    about = CeremonyFile(
        origin=online.origin, rehearsal=rehearsal, created=now, note=note
    )
    ceremony = Ceremony(about, proposal, online=online_bytes)
    for place in (*built, folder):
        ceremony = add_builds(ceremony, read_attestations(place))
    propose(folder, ceremony, "init", note, as_json=as_json)


def _role_set(paths: tuple[Path, ...], role: str, threshold: int) -> RoleSet:
    if not paths:
        raise UsageError(
            "STO-K053",
            f"nobody holds {role}",
            hint=f"stoilo release keygen --role {role} ..., then --{role} KEY.pub",
        )
    return RoleSet(read_holders(paths, role), threshold)
