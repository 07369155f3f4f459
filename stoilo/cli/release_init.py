"""`stoilo release init`: the first release of a project, proposed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoilo.cli.ceremony import (
    FILE,
    FOLDER,
    clock,
    json_option,
    print_review,
    read_holders,
    read_named,
    read_policies,
    read_small,
    read_witness_policy,
    refuse_present,
    save,
    with_attestations,
)
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.executor.verifier.release.targets import BuilderFile
    from stoilo.signer.ceremony.folder import Ceremony
    from stoilo.signer.ceremony.holders import RoleSet
    from stoilo.signer.onlinekeys import OnlineKeys

__all__ = ["init"]

ROLES = ("root", "targets", "gate", "policy", "reviewers", "revocation")
_SEVERAL = ("root", "targets")


def _role_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--ROLE KEY.pub`` and ``--ROLE-threshold N`` for every offline role."""
    for role in reversed(ROLES):
        threshold = 2 if role in _SEVERAL else 1
        command = click.option(
            f"--{role}-threshold",
            type=click.IntRange(min=1),
            default=threshold,
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
    from stoilo.signer.ceremony.review import review  # noqa: PLC0415 - loads tuf
    from stoilo.signer.onlinekeys import parse_online_keys  # noqa: PLC0415 - as above

    refuse_present(folder)
    online_bytes = read_small(online_file)
    online = parse_online_keys(online_bytes)
    if origin not in {"", online.origin}:
        raise UsageError(
            "STO-K062", f"{online_file.name} was made for {online.origin!r}"
        )
    roles = {
        role: _role_set(named[role], role, named[f"{role}_threshold"]) for role in ROLES
    }
    first = _first_content(
        online,
        policies,
        log_policy,
        _builder_file(builders, builders_threshold),
    )
    ceremony = _first_ceremony(
        online, online_bytes, roles, first, built, note, rehearsal=rehearsal
    )
    ceremony = with_attestations(ceremony, folder)
    save(folder, ceremony, "init", note)
    print_review(review(ceremony, clock()), folder, as_json=as_json)


def _role_set(paths: tuple[Path, ...], role: str, threshold: int) -> RoleSet:
    from stoilo.signer.ceremony.holders import RoleSet  # noqa: PLC0415 - loads tuf

    if not paths:
        raise UsageError(
            "STO-K053",
            f"nobody holds {role}",
            hint=f"stoilo release keygen --role {role} ..., then --{role} KEY.pub",
        )
    return RoleSet(read_holders(paths, role), threshold)


def _builder_file(paths: tuple[Path, ...], threshold: int) -> BuilderFile:
    from stoilo.executor.verifier.release.targets import BuilderFile, BuilderKey  # noqa: PLC0415 - as above

    named = (read_named(path, "builder") for path in paths)
    keys = tuple(BuilderKey(one.key, one.name) for one in named)
    return BuilderFile(keys, threshold if keys else 0)


def _first_content(
    online: OnlineKeys,
    policies: tuple[Path, ...],
    log_policy: Path | None,
    builders: BuilderFile,
) -> tuple[Any, ...]:
    """Return every target of the first release but its parts."""
    from stoilo.executor.verifier.installation import installed_release  # noqa: PLC0415 - loads tuf
    from stoilo.policies.levels import level_files  # noqa: PLC0415 - as above
    from stoilo.policies.policy import default_policy  # noqa: PLC0415 - as above
    from stoilo.signer.ceremony.asks import (  # noqa: PLC0415 - as above
        FirstRelease,
        first_targets,
    )

    return first_targets(
        FirstRelease(
            online=online,
            witnesses=read_witness_policy(log_policy),
            installed=installed_release(),
            level_files=level_files(),
            policies=read_policies(policies) or (default_policy(),),
            builders=builders,
        )
    )


def _first_ceremony(
    online: OnlineKeys,
    online_bytes: bytes,
    roles: dict[str, RoleSet],
    targets: tuple[Any, ...],
    built: tuple[Path, ...],
    note: str,
    *,
    rehearsal: bool,
) -> Ceremony:
    from stoilo.signer.ceremony.asks import online_role  # noqa: PLC0415 - loads tuf
    from stoilo.signer.ceremony.folder import Ceremony, CeremonyFile  # noqa: PLC0415
    from stoilo.signer.ceremony.partfiles import (  # noqa: PLC0415 - as above
        read_attestations,
        read_parts_from,
    )
    from stoilo.signer.ceremony.proposal import (  # noqa: PLC0415 - as above
        ReleasePlan,
        first_proposal,
    )
    from stoilo.signer.ceremony.requests import add_builds  # noqa: PLC0415 - as above

    now = clock()
    server = online_role(online)
    put = [*targets]
    for directory in built:
        put += read_parts_from(directory).put
    plan = ReleasePlan(
        {**roles, "snapshot": server, "timestamp": server}, tuple(put), rehearsal, now
    )
    about = CeremonyFile(
        origin=online.origin, rehearsal=rehearsal, created=now, note=note
    )
    ceremony = Ceremony(about, first_proposal(plan), online=online_bytes)
    for directory in built:
        ceremony = add_builds(ceremony, read_attestations(directory))
    return ceremony
