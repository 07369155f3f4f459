"""`stoilo release request`: changes to a published release, proposed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoilo.cli.ceremony import (
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
    save,
)
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.signer.ceremony.changes import Changes
    from stoilo.signer.ceremony.folder import Ceremony
    from stoilo.signer.ceremony.proposal import Proposal

__all__ = ["read_floors", "request"]


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
    from stoilo.signer.ceremony.partfiles import read_attestations  # noqa: PLC0415
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
        from stoilo.signer.ceremony.changes import Changes  # noqa: PLC0415 - loads tuf
        from stoilo.signer.ceremony.partfiles import read_parts_from  # noqa: PLC0415

        del proposal
        changes = Changes()
        for directory in self.paths("built"):
            changes |= read_parts_from(directory)
        return changes

    def _online(self, proposal: Proposal) -> Changes:
        from stoilo.signer.ceremony.asks import take_online_keys  # noqa: PLC0415
        from stoilo.signer.onlinekeys import parse_online_keys  # noqa: PLC0415

        path = self.path("online_file")
        assert path is not None  # noqa: S101 - `steps` looked
        return take_online_keys(proposal, parse_online_keys(read_small(path)))

    def _levels(self, proposal: Proposal) -> Changes:
        from stoilo.executor.verifier.installation import installed_release  # noqa: PLC0415
        from stoilo.policies.levels import level_files  # noqa: PLC0415 - as above
        from stoilo.signer.ceremony.asks import take_levels  # noqa: PLC0415 - loads tuf

        installed = installed_release()
        return take_levels(proposal, installed, level_files())

    def _log(self, proposal: Proposal) -> Changes:
        from stoilo.signer.ceremony.asks import take_log_policy  # noqa: PLC0415
        from stoilo.signer.onlinekeys import parse_online_keys  # noqa: PLC0415

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
        from stoilo.signer.ceremony.asks import accept_policies  # noqa: PLC0415

        add = read_policies(self.paths("policies"))
        return accept_policies(proposal, add, self.texts("dropped"))

    def _reviewers(self, proposal: Proposal) -> Changes:
        from stoilo.executor.verifier.release.targets import ReviewerFile, read_target  # noqa: PLC0415
        from stoilo.signer.ceremony.asks import take_reviewers  # noqa: PLC0415

        del proposal
        path = self.path("reviewers")
        assert path is not None  # noqa: S101 - `steps` looked
        return take_reviewers(read_target(read_small(path), ReviewerFile, path.name))

    def _floors(self, proposal: Proposal) -> Changes:
        from stoilo.signer.ceremony.asks import raise_floors  # noqa: PLC0415

        return raise_floors(proposal, read_floors(self.texts("floors")))

    def _builders(self, proposal: Proposal) -> Changes:
        from stoilo.executor.verifier.release.targets import BuilderKey  # noqa: PLC0415 - loads tuf
        from stoilo.signer.ceremony.asks import change_builders  # noqa: PLC0415

        named = (read_named(path, "builder") for path in self.paths("builder_in"))
        add = [BuilderKey(one.key, one.name) for one in named]
        out = [one.key for one in read_holders(self.paths("builder_out"), "builder")]
        return change_builders(proposal, add, out, self.number("builders_threshold"))

    def _renew(self, proposal: Proposal) -> Changes:
        from stoilo.signer.ceremony.changes import Changes  # noqa: PLC0415 - loads tuf
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
