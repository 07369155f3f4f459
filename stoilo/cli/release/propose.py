"""`stoilo release request`: changes to a published release, proposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from stoilo.executor.release import BuilderFile
    from stoilo.signer.ceremony.folder import Ceremony
    from stoilo.signer.ceremony.key_holders import RoleSet
    from stoilo.signer.ceremony.proposal import Changes, Proposal
    from stoilo.signer.ceremony.requests import Withdrawal
    from stoilo.signer.process.online_keys import OnlineKeys

__all__ = ["init", "read_floors", "request", "revoke", "rotate"]


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
    **asked: object,
) -> None:
    """Propose changes to a published release in FOLDER, for people to review and sign.

    Once FOLDER holds a ceremony that nobody has signed, the command may be given again
    (without --release) to ask for more.

    Example: stoilo release request STICK --release /srv/stoilo --build dist --renew soon
    """
    from stoilo.signer.ceremony.built_parts import read_attestations  # noqa: PLC0415
    from stoilo.signer.ceremony.requests import add_builds, ask_for  # noqa: PLC0415
    from stoilo.signer.ceremony.review import review  # noqa: PLC0415 - loads tuf

    ceremony = open_or_begin(
        folder, release_directory, note, renews_expired=renew_expired
    )
    now = clock()
    wanted = _Asked(asked, now)
    for step in wanted.steps():
        ceremony = ask_for(ceremony, step(ceremony.proposal), now)
    for directory in wanted.paths("built"):
        ceremony = add_builds(ceremony, read_attestations(directory))
    ceremony = _with_online(ceremony, wanted)
    if not ceremony.proposal.metadata:
        raise UsageError(
            "STO-K054",
            "nothing would change",
            hint="say what: `stoilo release request --help`",
        )
    save(folder, ceremony, "request", note)
    print_review(review(ceremony, now), folder, as_json=as_json)


def read_floors(rows: tuple[str, ...]) -> dict[str, int]:
    """Return part → lowest serial, of ``PART=SERIAL`` texts; raises ``STO-U003``."""
    floors = {}
    for row in rows:
        part, _, serial = row.partition("=")
        if not part or not serial.isascii() or not serial.isdigit():
            raise UsageError("STO-U003", f"{row[:40]!r} is not PART=SERIAL")
        floors[part] = int(serial)
    return floors


def _with_online(ceremony: Ceremony, wanted: _Asked) -> Ceremony:
    """Keep the file of online keys in the folder, for the record."""
    path = wanted.path("online_file")
    return ceremony if path is None else replace(ceremony, online=read_small(path))


class _Asked:
    """The options of one request, as steps that change a proposal."""

    def __init__(self, options: dict[str, object], now: int) -> None:
        self._options = options
        self._now = now

    def path(self, name: str) -> Path | None:
        """Return an option that is one path."""
        value = self._options[name]
        return value if isinstance(value, Path) else None

    def paths(self, name: str) -> tuple[Path, ...]:
        """Return an option that is several paths."""
        value = self._options[name]
        rows = value if isinstance(value, tuple) else ()
        return tuple(one for one in rows if isinstance(one, Path))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return an option that is several texts."""
        value = self._options[name]
        rows = value if isinstance(value, tuple) else ()
        return tuple(one for one in rows if isinstance(one, str))

    def number(self, name: str) -> int | None:
        """Return an option that is a number."""
        value = self._options[name]
        return value if isinstance(value, int) else None

    def steps(self) -> Iterator[_Step]:
        """Yield what was asked for, each on what the earlier ones made."""
        if self.paths("built"):
            yield self._build
        if self.path("online_file"):
            yield self._online
        if self._options["levels"]:
            yield self._levels
        if self.path("log_policy") or self.number("log_size") is not None:
            yield self._log
        if self.paths("policies") or self.texts("dropped"):
            yield self._policies
        if self.path("reviewers"):
            yield self._reviewers
        if self.texts("floors"):
            yield self._floors
        if (
            self.paths("builder_in")
            or self.paths("builder_out")
            or self.number("builders_threshold") is not None
        ):
            yield self._builders
        if self.texts("renew"):
            yield self._renew

    def _build(self, proposal: Proposal) -> Changes:
        from stoilo.signer.ceremony.built_parts import read_parts_from  # noqa: PLC0415
        from stoilo.signer.ceremony.proposal import Changes  # noqa: PLC0415 - loads tuf

        del proposal
        changes = Changes()
        for directory in self.paths("built"):
            changes |= read_parts_from(directory)
        return changes

    def _online(self, proposal: Proposal) -> Changes:
        from stoilo.signer.ceremony.requests import take_online_keys  # noqa: PLC0415
        from stoilo.signer.process.online_keys import parse_online_keys  # noqa: PLC0415

        path = self.path("online_file")
        assert path is not None  # noqa: S101 - `steps` looked
        return take_online_keys(proposal, parse_online_keys(read_small(path)))

    def _levels(self, proposal: Proposal) -> Changes:
        from stoilo.executor.installed import installed_release  # noqa: PLC0415
        from stoilo.policies.levels import level_files  # noqa: PLC0415 - as above
        from stoilo.signer.ceremony.requests import take_levels  # noqa: PLC0415 - loads tuf

        installed = installed_release()
        return take_levels(proposal, installed, level_files())

    def _log(self, proposal: Proposal) -> Changes:
        from stoilo.signer.ceremony.requests import take_log_policy  # noqa: PLC0415
        from stoilo.signer.process.online_keys import parse_online_keys  # noqa: PLC0415

        size = self.number("log_size")
        if size is None:
            raise UsageError(
                "STO-U003",
                "the log's present size is needed, so that older proofs stay good",
                hint="`stoilo audit verify DIR` prints it: --log-size LEAVES",
            )
        online = self.path("online_file")
        vkey = parse_online_keys(read_small(online)).log_vkey if online else ""
        witnesses = read_witness_policy(self.path("log_policy"))
        return take_log_policy(proposal, witnesses, vkey, now=self._now, size=size)

    def _policies(self, proposal: Proposal) -> Changes:
        from stoilo.signer.ceremony.requests import accept_policies  # noqa: PLC0415

        add = read_policies(self.paths("policies"))
        return accept_policies(proposal, add, self.texts("dropped"))

    def _reviewers(self, proposal: Proposal) -> Changes:
        from stoilo.executor.release import ReviewerFile, read_target  # noqa: PLC0415
        from stoilo.signer.ceremony.requests import take_reviewers  # noqa: PLC0415

        del proposal
        path = self.path("reviewers")
        assert path is not None  # noqa: S101 - `steps` looked
        return take_reviewers(read_target(read_small(path), ReviewerFile, path.name))

    def _floors(self, proposal: Proposal) -> Changes:
        from stoilo.signer.ceremony.requests import raise_floors  # noqa: PLC0415

        return raise_floors(proposal, read_floors(self.texts("floors")))

    def _builders(self, proposal: Proposal) -> Changes:
        from stoilo.executor.release import BuilderKey  # noqa: PLC0415 - loads tuf
        from stoilo.signer.ceremony.requests import change_builders  # noqa: PLC0415

        named = (read_named(path, "builder") for path in self.paths("builder_in"))
        add = [BuilderKey(one.key, one.name) for one in named]
        out = [one.key for one in read_holders(self.paths("builder_out"), "builder")]
        return change_builders(proposal, add, out, self.number("builders_threshold"))

    def _renew(self, proposal: Proposal) -> Changes:
        from stoilo.signer.ceremony.proposal import Changes  # noqa: PLC0415 - loads tuf
        from stoilo.signer.ceremony.requests import roles_ending  # noqa: PLC0415
        from stoilo.signer.roles import OFFLINE  # noqa: PLC0415 - as above

        roles: list[str] = []
        for word in self.texts("renew"):
            if word == "all":
                roles += OFFLINE
            elif word == "soon":
                roles += roles_ending(proposal.base, self._now) if proposal.base else ()
            else:
                roles.append(word)
        return Changes(renew=tuple(dict.fromkeys(roles)))


if TYPE_CHECKING:
    from collections.abc import Callable

    _Step = Callable[[Proposal], Changes]


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
    from stoilo.signer.process.online_keys import parse_online_keys  # noqa: PLC0415 - as above

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
    from stoilo.signer.ceremony.key_holders import RoleSet  # noqa: PLC0415 - loads tuf

    if not paths:
        raise UsageError(
            "STO-K053",
            f"nobody holds {role}",
            hint=f"stoilo release keygen --role {role} ..., then --{role} KEY.pub",
        )
    return RoleSet(read_holders(paths, role), threshold)


def _builder_file(paths: tuple[Path, ...], threshold: int) -> BuilderFile:
    from stoilo.executor.release import BuilderFile, BuilderKey  # noqa: PLC0415 - as above

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
    from stoilo.executor.installed import (  # noqa: PLC0415 - loads tuf
        installed_release,
    )
    from stoilo.policies.levels import level_files  # noqa: PLC0415 - as above
    from stoilo.policies.policy import default_policy  # noqa: PLC0415 - as above
    from stoilo.signer.ceremony.requests import FirstRelease, first_targets  # noqa: PLC0415 - as above

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
    from stoilo.signer.ceremony.built_parts import read_attestations, read_parts_from  # noqa: PLC0415 - as above
    from stoilo.signer.ceremony.folder import Ceremony, CeremonyFile  # noqa: PLC0415
    from stoilo.signer.ceremony.proposal import (  # noqa: PLC0415 - as above
        ReleasePlan,
        first_proposal,
    )
    from stoilo.signer.ceremony.requests import (  # noqa: PLC0415
        add_builds,
        online_role,
    )

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
    from stoilo.signer.ceremony.key_holders import RoleChange  # noqa: PLC0415
    from stoilo.signer.ceremony.proposal import Changes  # noqa: PLC0415
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
    from stoilo.signer.ceremony.requests import (  # noqa: PLC0415
        Withdrawal,
        ask_for,
        withdraw,
    )
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
    from stoilo.signer.ceremony.built_parts import drop_part  # noqa: PLC0415
    from stoilo.signer.ceremony.content_checks import named_targets  # noqa: PLC0415
    from stoilo.signer.ceremony.proposal import Changes  # noqa: PLC0415 - loads tuf

    return Changes(drop=drop_part(set(named_targets(proposal)), *_split(part)))


def _with_part(proposal: Proposal, made: Withdrawal, part: str) -> Withdrawal:
    """Return the withdrawal with a published part's archives, and a flavor's id."""
    from dataclasses import replace  # noqa: PLC0415 - with the rest

    from stoilo.signer.ceremony.content_checks import release_parts  # noqa: PLC0415
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
    from stoilo.signer.ceremony.key_holders import RoleChange  # noqa: PLC0415
    from stoilo.signer.ceremony.proposal import Changes  # noqa: PLC0415
    from stoilo.signer.ceremony.requests import change_builders  # noqa: PLC0415

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
